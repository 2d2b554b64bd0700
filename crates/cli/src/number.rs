//! Numbers and times as people read them.

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number that may be larger than it says.
pub(crate) fn at_least(number: u64, is_more: bool) -> String {
    let more = if is_more { "+" } else { "" };
    format!("{}{more}", grouped(number))
}

/// How long, in the unit that says most.
pub(crate) fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_times_short() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(at_least(10_000, true), "10,000+");
        assert_eq!([59, 150, 7_300, 200_000].map(time), ["59s", "2m", "2h", "2d"]);
    }
}
