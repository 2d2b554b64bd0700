//! Within what a key is unique.

use super::{Key, KeyError, Template};
use crate::message::Message;

/// Within what a key is unique. The default is the consumer: two consumers of one message each handle it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Per consumer.
    #[default]
    Consumer,
    /// Across all consumers that choose it: whoever is first handles the message, the others see a duplicate.
    Global,
    /// Per entity: `{order_id}`.
    Entity(Template),
    /// Per tenant: `{@header.tenant}`.
    Tenant(Template),
    /// Per operation and the resource that it acts on: `{@type}` on `{invoice_id}`.
    Operation {
        /// What is done.
        operation: Template,
        /// What it is done to.
        resource: Template,
    },
    /// Per time window: `{ts|day}`. After it, the same key is a new message.
    Window(Template),
}

impl Scope {
    /// `key` within this scope.
    pub fn within(&self, message: &Message, key: Key) -> Result<Key, KeyError> {
        let (tag, values) = match self {
            Self::Consumer | Self::Global => return Ok(key),
            Self::Entity(entity) => ("entity", entity.fill(message)?),
            Self::Tenant(tenant) => ("tenant", tenant.fill(message)?),
            Self::Window(window) => ("window", window.fill(message)?),
            Self::Operation { operation, resource } => {
                ("operation", vec![operation.text(message)?, resource.text(message)?])
            }
        };
        let values = values.iter().map(String::as_bytes);
        Key::parts(std::iter::once(tag.as_bytes()).chain(values).chain([key.as_bytes()]))
    }

    /// In words, for the [scheme](crate::identity::Scheme) of a consumer.
    pub fn scheme_text(&self) -> String {
        match self {
            Self::Consumer => "consumer".to_owned(),
            Self::Global => "global".to_owned(),
            Self::Entity(entity) => format!("entity `{entity}`"),
            Self::Tenant(tenant) => format!("tenant `{tenant}`"),
            Self::Window(window) => format!("window `{window}`"),
            Self::Operation { operation, resource } => format!("operation `{operation}` on `{resource}`"),
        }
    }

    /// Whether records are shared between consumers.
    pub fn is_global(&self) -> bool {
        matches!(self, Self::Global)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    #[test]
    fn a_scope_keeps_equal_keys_apart() {
        let key = Key::id("op-1").unwrap();
        let message = |tenant: &str| Message::new("t").with_json(&json!({"tenant": tenant, "id": 7})).unwrap();
        let within = |scope: &Scope, tenant: &str| scope.within(&message(tenant), key.clone()).unwrap();

        assert_eq!(within(&Scope::Consumer, "a"), within(&Scope::Consumer, "b"));
        let tenant = Scope::Tenant(template("{tenant}"));
        assert_eq!(within(&tenant, "a"), within(&tenant, "a"));
        assert_ne!(within(&tenant, "a"), within(&tenant, "b"));
        assert_ne!(within(&tenant, "a"), within(&Scope::Entity(template("{tenant}")), "a"));
        let operation = Scope::Operation { operation: template("{@type}"), resource: template("{id}") };
        assert_ne!(within(&operation, "a"), key);
    }
}
