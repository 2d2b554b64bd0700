//! Durations as people write them: `200ms`, `30s`, `5m`, `12h`, `30d`.

use std::time::Duration;

/// Reads one.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; write 200ms, 30s, 5m, 12h or 30d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let millis: u64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| format!("`{text}` is too long a time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, millis) in [("200ms", 200), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
        for wrong in ["", "5", "m", "-5m", "5 m", "5min", "1.5h", "9999999999999999999d", "5é"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("999999999999999999d").unwrap_err().contains("too long"));
    }
}
