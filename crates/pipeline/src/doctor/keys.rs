//! Keys that catch more than one message.

use oncebox::key::KeyStrategy;

use super::finding::{Finding, Severity};
use crate::file::ConsumerSpec;

/// A key from the payload that messages of several types share: the second type of an entity is taken for a duplicate or
/// a conflict of the first.
pub(super) fn too_broad(spec: &ConsumerSpec) -> Option<Finding> {
    let KeyStrategy::Template(template) = &spec.key else { return None };
    let shown = template.to_string();
    if spec.on.len() < 2 || shown.contains("{@type") {
        return None;
    }
    let types: Vec<&str> = spec.on.iter().map(|on| on.kind.as_str()).collect();
    let evidence = format!("key `{shown}` is the same for {} of one entity", types.join(" and "));
    let fix =
        "use the message's id, or a field that each message has for itself; or give each type a consumer of its own";
    Some(Finding::new("key.too-broad", Severity::Warning, format!("consumer {}", spec.name), evidence, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Pipeline;

    fn consumer(key: &str, types: &[&str]) -> ConsumerSpec {
        let on: String =
            types.iter().map(|kind| format!("[[consumer.on]]\ntype = \"{kind}\"\nsql = \"select 1\"\n")).collect();
        let text = format!(
            "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"c\"\nfrom = \"queue:q\"\nkey = \"{key}\"\n{on}"
        );
        Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap().consumers.remove(0)
    }

    #[test]
    fn an_entity_s_id_as_the_key_of_two_types_is_too_broad() {
        let found = too_broad(&consumer("order:{order_id}", &["OrderPlaced", "OrderShipped"])).unwrap();
        assert_eq!(found.evidence, "key `order:{order_id}` is the same for OrderPlaced and OrderShipped of one entity");
    }

    #[test]
    fn one_type_and_message_ids_are_fine() {
        assert_eq!(too_broad(&consumer("payment:{payment_id}", &["PaymentReceived"])), None);
        assert_eq!(too_broad(&consumer("message-id", &["OrderPlaced", "OrderShipped"])), None);
    }
}
