//! No file makes it panic: valid files, changed as people and machines change them.
//!
//! A few seconds; `ONCEBOX_TEST_FUZZ_CASES` makes it as long as you like.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use oncebox_pipeline::file::Pipeline;
use oncebox_pipeline::place::{Destination, Origin};
use proptest::prelude::*;

/// Lines of files that use everything there is; indented ones belong to the table before.
const LINES: &[&str] = &[
    "[store]\nurl = \"sqlite://shop.db\"",
    "[store]\nurl = \"postgres://app:${PASSWORD}@db/shop\"\nschema = \"inbox\"\nsetup = \"schema.sql\"",
    "[[consumer]]\nname = \"invoices\"\nfrom = \"queue:payments\"\nkey = \"payment:{payment_id}\"\norder_by = \"{invoice_id}\"",
    "[[consumer]]\nname = \"a\"\nfrom = \"amqp://u:${PASSWORD}@h/%2f/q\"\nkey = \"content-hash\"\ncreate = true\nlanes = 4",
    "[[consumer]]\nname = \"b\"\nfrom = \"nats://h/stream/durable\"\nversion = \"{version}\"\norder_by = \"{id}\"",
    "[[consumer]]\nname = \"c\"\nfrom = \"kafka://h1,h2/topic\"\nstart = \"beginning\"\nrequire = \"effectively-once\"",
    "retention = \"30d\"\nretry = { attempts = 8, first = \"200ms\", max = \"5m\" }",
    "[[consumer.on]]\ntype = \"payment.received\"\nsql = \"update i set paid = paid + :amount.0 where id = :@id\"\nexpect = 1",
    "[[consumer.on]]\ntype = \"t\"\nsql = [\"select 1\", { sql = \"insert into p values (:a.b, '--:x', $$ :y $$)\", expect = 1 }]",
    "emit = [{ type = \"x\", topic = \"{t}\", key = \"{k}\", payload = { a = \"{a}\", b = [1, 2.5, true, \"n {n}\"] } }]",
    "[relay]\nto = \"amqp://guest:${PASSWORD}@127.0.0.1/\"\nkeep_sent = true",
    "[relay]\nto = \"queue:\"",
    "[kafka]\n\"sasl.password\" = \"${PASSWORD}\"",
    "[traces]\nendpoint = \"http://127.0.0.1:4318\"\nratio = 0.1",
    "[console]\nlisten = \"127.0.0.1:7070\"",
    "# a comment: { } [ ] \" '",
];

/// What takes the place of a piece.
const PIECES: &[&str] = &[
    "",
    "=",
    "\"",
    "'''",
    "\"\"\"",
    "[",
    "]",
    "{",
    "}",
    "{{",
    ",",
    ".",
    ":",
    "::",
    "$",
    "$$",
    "${",
    "${PASSWORD}",
    "${}",
    "\\",
    "\\u0000",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "é",
    "🦀",
    "\u{202e}",
    "-1",
    "0",
    "1e999",
    "nan",
    "99999999999999999999999999",
    "0x7fffffffffffffffff",
    "1979-05-27T07:32:00Z",
    "true",
    "null",
    "://",
    "%",
    "%zz",
    "%2f",
    "@",
    "@@",
    ":@header.",
    ":a..b",
    "--",
    "/*",
    "$tag$",
    "queue:",
    "amqp:",
    "kafka://",
    "nats://",
    "postgres:",
    "sqlite:",
    "999999999999999999d",
    "0ms",
];

/// What lines begin with that hold names.
const NAMES: &[&str] = &["name", "type", "schema", "setup", "emit", "from = \"queue:"];

fn environment(name: &str) -> Option<String> {
    (name == "PASSWORD").then(|| "CANARY".to_owned())
}

/// `planted`: a variable may stand anywhere, also in what is shown on purpose, such as a host.
fn check(text: &str, planted: bool) -> Result<(), TestCaseError> {
    let read = Pipeline::parse("oncebox.toml", text, &environment);
    // Names are shown, whatever they are made of.
    let is_named = |line: &str| NAMES.iter().any(|name| line.starts_with(name)) && line.contains("${PASSWORD}");
    if text.lines().any(is_named) {
        return Ok(());
    }
    match read {
        Ok(_) if planted => {}
        Ok(pipeline) => prop_assert!(!format!("{pipeline:?}").contains("CANARY"), "{pipeline:?}"),
        Err(mistakes) => {
            prop_assert!(!mistakes.found.is_empty());
            prop_assert!(!mistakes.to_string().contains("CANARY"), "{mistakes}");
            let lines = text.lines().count().max(1) + 1;
            prop_assert!(mistakes.found.iter().all(|mistake| (1..=lines).contains(&mistake.line)), "{mistakes:?}");
        }
    }
    Ok(())
}

/// Another piece at a place of the text, over some of what follows.
fn changed(text: &str, changes: &[(usize, usize, &str)]) -> String {
    let mut text = text.to_owned();
    for (at, over, piece) in changes {
        let start = text.floor_char_boundary(at % (text.len() + 1));
        let end = text.floor_char_boundary((start + over).min(text.len())).max(start);
        text.replace_range(start..end, piece);
    }
    text
}

fn cases() -> u32 {
    std::env::var("ONCEBOX_TEST_FUZZ_CASES").ok().map_or(3000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn no_file_makes_it_panic_or_tells_a_secret(
        lines in prop::collection::vec(prop::sample::select(LINES), 0..8),
        changes in prop::collection::vec((0..2000_usize, 0..12_usize, prop::sample::select(PIECES)), 0..5),
    ) {
        let planted = changes.iter().any(|(_, _, piece)| piece.contains("PASSWORD"));
        check(&changed(&lines.join("\n"), &changes), planted)?;
    }

    #[test]
    fn no_address_makes_it_panic_or_is_told(
        start in prop::sample::select(&["queue:q", "amqp://u:CANARY@h:5672/v/q", "nats://u:CANARY@h/s/d", "kafka://CANARY@h/t", ""][..]),
        changes in prop::collection::vec((0..40_usize, 0..6_usize, prop::sample::select(PIECES)), 0..4),
    ) {
        let text = changed(start, &changes);
        for said in [Origin::parse(&text).err(), Destination::parse(&text).err()].into_iter().flatten() {
            prop_assert!(!said.contains("CANARY"), "{said}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(text in "\\PC{0,200}") {
        check(&text, false)?;
    }
}
