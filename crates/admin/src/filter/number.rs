//! Numbers of a payload, compared without losing what a float can't hold where both are whole.

use std::cmp::Ordering;

use serde_json::Number;

use super::Order;

/// How two numbers compare; `None` never happens for numbers that JSON can hold.
pub(super) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
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
