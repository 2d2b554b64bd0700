//! No filter makes it panic: filters that mean something, changed as people change them.
//!
//! A few seconds; `ONCEBOX_TEST_FUZZ_CASES` makes it as long as you like.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use oncebox::parked::Cause;
use oncebox::quarantine::{ParkedRow, ParkedState};
use oncebox::{Class, ConsumerId, Fingerprinter, Key, Message, Timestamp};
use oncebox_admin::Filter;
use oncebox_admin::filter::Subject;
use proptest::prelude::*;

const WORDS: &[&str] = &[
    "all",
    "not",
    "and",
    "or",
    "(",
    ")",
    "class",
    "=",
    "!=",
    "permanent",
    "state",
    "dead",
    "type",
    "payment.*",
    "~",
    "cause",
    "\"timed out\"",
    "\"a\\\"b\"",
    "key",
    "order-7",
    "attempts",
    ">=",
    "3",
    "age",
    "<",
    "2h",
    "1d12h",
    "payload.amount",
    "100.5",
    "payload.\"odd name\".0",
    "payload.items.0",
    "header.tenant",
    "note",
    "made",
    ">",
    "90s",
    "-1",
    "1e400",
    "null",
    "true",
    "99999999999999999999",
    "9999999999999999999d",
    "payload.",
    ".",
    "\"",
    "\\",
    "!",
    "*",
    "**",
    "é",
    "🦀",
    "\0",
    "\u{202e}",
    "",
];

fn row() -> ParkedRow {
    let at = Timestamp::from_second(1_000_000).unwrap();
    let payload = r#"{"amount":100,"items":[{"sku":"a"}],"odd name":[null]}"#;
    let mut message = Message::received("payment.received", payload.into(), at);
    message.headers.add("tenant", "acme").unwrap();
    let cause = Cause::new(Some(Class::Permanent), "payment.received", "card declined");
    let fingerprint = Fingerprinter::default().fingerprint(&message);
    ParkedRow::new(4, ConsumerId(1), Key::id("7").unwrap(), fingerprint, message, ParkedState::Dead, cause, (at, at))
}

fn check(text: &str) -> Result<(), TestCaseError> {
    match Filter::parse(text) {
        Err(error) => prop_assert!(!error.to_string().is_empty()),
        Ok(filter) => {
            let row = row();
            let now = Timestamp::from_second(1_000_000 + 7200).unwrap();
            let matches = filter.matches(&Subject::new(&row, now));
            let again = Filter::parse(&filter.to_string());
            let again = again.map_err(|error| TestCaseError::fail(format!("{text} -> {filter}: {error}")))?;
            prop_assert_eq!(again.matches(&Subject::new(&row, now)), matches, "{} -> {}", text, filter);
        }
    }
    Ok(())
}

fn cases() -> u32 {
    std::env::var("ONCEBOX_TEST_FUZZ_CASES").ok().map_or(5000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec(prop::sample::select(WORDS), 0..14), glued in any::<bool>()) {
        check(&words.join(if glued { "" } else { " " }))?;
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,120}") {
        check(&text)?;
    }

    #[test]
    fn no_depth_makes_it_panic(depth in 0..3000_usize, opening in prop::sample::select(&["(", "not ", "not(", "all and ", "all or "][..])) {
        check(&format!("{}all", opening.repeat(depth)))?;
    }
}
