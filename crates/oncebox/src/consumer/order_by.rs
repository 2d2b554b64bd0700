//! What messages are kept in order by.

use std::fmt;

use oncebox_core::Template;
use oncebox_core::key::TemplateError;

/// What messages are kept in order by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderBy {
    /// No order is kept.
    #[default]
    Nothing,
    /// The message's own order key. Messages without one are free.
    MessageKey,
    /// A key built from the message: `{invoice_id}`.
    Template(Template),
}

impl OrderBy {
    /// A key built from the message: `{invoice_id}`.
    pub fn template(text: &str) -> Result<Self, TemplateError> {
        Template::parse(text).map(Self::Template)
    }

    pub(super) fn is_kept(&self) -> bool {
        *self != Self::Nothing
    }
}

impl fmt::Display for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::MessageKey => f.write_str("order key"),
            Self::Template(template) => template.fmt(f),
        }
    }
}

/// The order key of a message that came through us is what the order asks for.
pub(super) fn by_message_key(order: &OrderBy) -> OrderBy {
    if order.is_kept() { OrderBy::MessageKey } else { OrderBy::Nothing }
}
