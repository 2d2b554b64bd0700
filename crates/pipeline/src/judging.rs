//! What a consumer of the file makes of a message, for those who look at parked ones.

use oncebox::{Message, Versioned};

use crate::file::ConsumerSpec;
use crate::handler;
use crate::payload::Fields;

impl ConsumerSpec {
    /// How it counts versions, if it does. An error says what is wrong with the file.
    pub fn versioned(&self) -> Option<Result<Versioned, String>> {
        let (version, aggregate) = (self.version.as_ref()?, self.order_by.as_ref()?);
        let versioned = Versioned::by(&aggregate.to_string()).and_then(|by| by.version(&version.to_string()));
        Some(versioned.map_err(|error| error.to_string()))
    }

    /// Whether the statements of today's file can read a message, and what it emits with them can be made of it; if not,
    /// why, in words without payload.
    pub fn can_read(&self, message: &Message) -> Result<(), String> {
        let on = self.on.iter().find(|on| on.kind == message.kind);
        let on = on.ok_or_else(|| format!("consumer {} has no [[consumer.on]] for its type", self.name))?;
        let fields = Fields::read(message);
        for path in on.sql.iter().flat_map(|statement| &statement.parameters) {
            fields.value(path).map_err(|error| error.to_string())?;
        }
        for emit in &on.emit {
            handler::event(emit, &fields).map_err(|error| format!("{error}, which `emit` of {} needs", emit.kind))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use oncebox::Message;
    use serde_json::json;

    use crate::file::Pipeline;

    #[test]
    fn a_message_without_a_field_that_a_statement_binds_cannot_be_read() {
        let file = "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"a\"\nfrom = \"queue:q\"\n\
                    [[consumer.on]]\ntype = \"t\"\nsql = \"insert into p values (:id, :amount)\"\n";
        let pipeline = Pipeline::parse("f", file, &|_: &str| None).unwrap();
        let spec = &pipeline.consumers[0];
        let message = |payload| Message::new("t").with_json(&payload).unwrap();
        assert_eq!(spec.can_read(&message(json!({ "id": 1, "amount": null }))), Ok(()));
        assert_eq!(spec.can_read(&message(json!({ "id": 1 }))), Err("the payload has no field `amount`".to_owned()));
        assert!(spec.can_read(&Message::new("other")).unwrap_err().contains("no [[consumer.on]]"));
        assert!(spec.versioned().is_none());
    }

    #[test]
    fn a_message_without_a_field_that_is_emitted_cannot_be_read() {
        let emitting = |emit: &str| {
            let file = format!(
                "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"a\"\nfrom = \"queue:q\"\n\
                 [[consumer.on]]\ntype = \"t\"\nemit = [{{ type = \"noted\", {emit} }}]\n"
            );
            Pipeline::parse("f", &file, &|_: &str| None).unwrap().consumers.remove(0)
        };
        let message = Message::new("t").with_json(&json!({ "id": 1, "none": null })).unwrap();
        let says = |path: &str| Err(format!("the payload has no field `{path}`, which `emit` of noted needs"));
        for (emit, expected) in [
            ("topic = \"{id}\", key = \"{id}\", payload = { of = \"{none}\" }", Ok(())),
            ("topic = \"{where}\"", says("where")),
            ("topic = \"{none}\"", says("none")),
            ("topic = \"x\", key = \"{account.id}\"", says("account.id")),
            ("topic = \"x\", payload = { deep = [{ of = \"{gone}\" }] }", says("gone")),
        ] {
            assert_eq!(emitting(emit).can_read(&message), expected, "{emit}");
        }
        let text = Message::new("t").with_payload("no JSON");
        let said = emitting("topic = \"x\"").can_read(&text);
        assert_eq!(said, Err("the payload is not JSON, which `emit` of noted needs".to_owned()));
    }
}
