//! What a consumer of the file makes of a message, for those who look at parked ones.

use oncebox::{Message, Versioned};

use crate::file::ConsumerSpec;
use crate::payload::Fields;

impl ConsumerSpec {
    /// How it counts versions, if it does. An error says what is wrong with the file.
    pub fn versioned(&self) -> Option<Result<Versioned, String>> {
        let (version, aggregate) = (self.version.as_ref()?, self.order_by.as_ref()?);
        let versioned = Versioned::by(&aggregate.to_string()).and_then(|by| by.version(&version.to_string()));
        Some(versioned.map_err(|error| error.to_string()))
    }

    /// Whether the statements of today's file can read a message; if not, why, in words without payload.
    pub fn can_read(&self, message: &Message) -> Result<(), String> {
        let on = self.on.iter().find(|on| on.kind == message.kind);
        let on = on.ok_or_else(|| format!("consumer {} has no [[consumer.on]] for its type", self.name))?;
        let fields = Fields::read(message);
        for path in on.sql.iter().flat_map(|statement| &statement.parameters) {
            fields.value(path).map_err(|error| error.to_string())?;
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
}
