//! Numbers of a payload, compared digit by digit.

use std::cmp::Ordering;
use std::fmt;

use oncebox_core::decimal::Decimal;

use super::Order;

/// A number as a filter or a payload writes it.
#[derive(Clone, Debug)]
pub(super) struct Number {
    text: String,
    value: Decimal,
}

impl Number {
    /// A number of JSON; `None`: it is none.
    pub(super) fn read(text: &str) -> Option<Self> {
        // A number of JSON has no zero before its first digit.
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
        Some(Self { value: Decimal::read(text)?, text: text.to_owned() })
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

/// By value: `1` and `1.0` are the same.
impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// As it was written.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Order {
    /// Whether two things that compare so stand in this order.
    pub(super) fn holds(self, found: Ordering) -> bool {
        match self {
            Self::Is => found.is_eq(),
            Self::IsNot => found.is_ne(),
            Self::Less => found.is_lt(),
            Self::LessOrIs => found.is_le(),
            Self::More => found.is_gt(),
            Self::MoreOrIs => found.is_ge(),
        }
    }
}
