//! Numbers as JSON writes them, with every digit.

use std::cmp::Ordering;

/// A number by its value: `1.0`, `1` and `10e-1` are the same, and no two others are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: String,
    /// How many digits stand before the point; negative where zeros follow it.
    places: i64,
}

/// No text is long enough to make up for an exponent of this size.
const PLACES_MAX: i64 = i64::MAX / 4;

impl Decimal {
    /// Reads a number of JSON; `None`: it is none.
    pub fn read(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || (mantissa.contains('.') && !is_number(fraction)) {
            return None;
        }
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0').to_owned();
        if digits.is_empty() {
            exponent_of(exponent)?;
            return Some(Self { is_negative: false, digits, places: 0 });
        }
        let zeros = i64::try_from(all.len() - significant.len()).ok()?;
        let places = i64::try_from(whole.len()).ok()?.saturating_add(exponent_of(exponent)?).saturating_sub(zeros);
        Some(Self { is_negative, digits, places })
    }

    /// The float that is written with these digits; `None`: none is, so that one in their place would be another number.
    pub fn exact_float(text: &str) -> Option<f64> {
        let float: f64 = text.parse().ok().filter(|float: &f64| float.is_finite())?;
        // The shortest digits that lead to this float, and to no other.
        (Self::read(&format!("{float:e}"))? == Self::read(text)?).then_some(float)
    }
}

fn exponent_of(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse::<i64>().unwrap_or(PLACES_MAX).min(PLACES_MAX);
    Some(if is_negative { -size } else { size })
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |one: &Self| {
            if one.digits.is_empty() {
                0
            } else if one.is_negative {
                -1
            } else {
                1
            }
        };
        let (ours, theirs) = (sign(self), sign(other));
        let size = || self.places.cmp(&other.places).then_with(|| self.digits.cmp(&other.digits));
        ours.cmp(&theirs).then_with(|| if ours < 0 { size().reverse() } else { size() })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::read(text).unwrap()
    }

    #[test]
    fn a_number_is_its_value_to_the_last_digit() {
        for (one, other) in [("1", "1.0"), ("1", "10e-1"), ("-0", "0.00e9"), ("120", "1.2E+2"), ("0.01", "1e-2")] {
            assert_eq!(decimal(one), decimal(other));
        }
        let ordered = [
            "-1e999999999999999999999",
            "-123456789012345678.92",
            "-123456789012345678.91",
            "-0.1",
            "0",
            "1e-999999999",
            "0.00999",
            "0.01",
            "9",
            "9.1",
            "10",
            "123456789012345678.91",
            "123456789012345678.92",
            "1e400",
            "1e999999999",
        ];
        for pair in ordered.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
        for none in ["", "-", "1.", ".1", "1e", "1e+", "0x1", "NaN", "1e5.0", "1-2"] {
            assert_eq!(Decimal::read(none), None, "{none}");
        }
    }

    #[test]
    fn a_float_stands_for_its_own_digits_alone() {
        let floats = ["12.10", "0.1", "1e5", "1E+5", "-0.0", "0.30000000000000004", "1.7976931348623157e308", "5e-324"];
        for digits in floats {
            assert_eq!(Decimal::exact_float(digits), digits.parse().ok(), "{digits}");
        }
        for digits in ["123456789012345678.91", "1e400", "1e999999999", "0.1000000000000000055", "1e-400"] {
            assert_eq!(Decimal::exact_float(digits), None, "{digits}");
        }
    }

    proptest! {
        #[test]
        fn every_float_is_one(float in any::<f64>().prop_filter("finite", |float| float.is_finite())) {
            for digits in [format!("{float}"), format!("{float:e}"), format!("{float:?}")] {
                prop_assert_eq!(Decimal::exact_float(&digits).map(f64::to_bits), Some(float.to_bits()), "{}", digits);
            }
        }

        #[test]
        fn floats_compare_as_floats(a in any::<f64>(), b in any::<f64>()) {
            prop_assume!(a.is_finite() && b.is_finite());
            let compared = decimal(&format!("{a:e}")).cmp(&decimal(&format!("{b:e}")));
            prop_assert_eq!(Some(compared), a.partial_cmp(&b));
        }
    }
}
