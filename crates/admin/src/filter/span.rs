//! Lengths of time as people write them: `90s`, `2h`, `1d12h`.

use std::time::Duration;

const UNITS: [(&str, u64); 6] =
    [("w", 7 * 86_400_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a length of time.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut millis: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..end])?;
        millis = millis.checked_add(number.checked_mul(*unit)?)?;
        rest = &rest[end..];
    }
    // Half of what a time can hold, so that adding it to one does not fail.
    (!text.is_empty() && millis < u64::MAX / 4).then(|| Duration::from_millis(millis))
}

/// Writes a length of time so that it reads the same again.
pub(super) fn print(span: Duration) -> String {
    let mut millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (name, unit) in UNITS {
        if millis >= unit {
            text.push_str(&format!("{}{name}", millis / unit));
            millis %= unit;
        }
    }
    text
}
