//! What is wrong with a file is told with its line, all of it at once, and without its values.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use oncebox_pipeline::file::Pipeline;
use proptest::prelude::*;

const GOOD: &str = r#"
[store]
url = "sqlite://shop.db"

[[consumer]]
name = "invoices"
from = "queue:payments"
key = "payment:{payment_id}"
order_by = "{invoice_id}"
retention = "30d"
retry = { attempts = 8, first = "200ms", max = "5m" }

  [[consumer.on]]
  type = "payment.received"
  sql = [
    "update invoices set paid = paid + :amount where id = :invoice_id",
    { sql = "insert into payments values (:payment_id)", expect = 1 },
  ]
  emit = [{ type = "invoice.paid", topic = "invoices", key = "{invoice_id}", payload = { invoice = "{invoice_id}", n = 1 } }]

[relay]
to = "amqp://guest:${PASSWORD}@127.0.0.1/"
"#;

fn environment(name: &str) -> Option<String> {
    (name == "PASSWORD").then(|| "CANARY".to_owned())
}

fn read(text: &str) -> Result<Pipeline, Vec<String>> {
    let read = Pipeline::parse("oncebox.toml", text, &environment);
    read.map_err(|mistakes| mistakes.to_string().lines().map(str::to_owned).collect())
}

#[test]
fn a_good_file_is_read() {
    let pipeline = read(GOOD).unwrap();
    let consumer = &pipeline.consumers[0];
    assert_eq!((consumer.name.as_str(), consumer.from.to_string().as_str()), ("invoices", "queue:payments"));
    assert_eq!(consumer.retention.kept.unwrap().as_secs(), 30 * 24 * 3600);
    assert_eq!(consumer.on[0].sql.iter().map(|statement| statement.expect).collect::<Vec<_>>(), [None, Some(1)]);
    assert_eq!(consumer.on[0].emit.len(), 1);
    assert_eq!(pipeline.relay.as_ref().unwrap().to.to_string(), "amqp://127.0.0.1/%2f");
    assert!(!format!("{pipeline:?}").contains("CANARY"), "{pipeline:?}");
}

#[test]
fn where_metrics_are_served_is_read() {
    assert!(read(GOOD).unwrap().metrics.is_none());
    let with = |metrics: &str| read(&format!("{GOOD}\n[metrics]\n{metrics}\n"));
    let metrics = with("listen = \"127.0.0.1:9464\"").unwrap().metrics.unwrap();
    assert_eq!((metrics.listen.port(), metrics.stuck_after.as_secs()), (9464, 300));
    for (metrics, expected) in [
        ("", "oncebox.toml:24: [metrics] has no `listen`"),
        (
            "listen = \"localhost\"",
            "oncebox.toml:25: `listen` in [metrics]: it is no address; write IP:port, such as 127.0.0.1:9464",
        ),
        (
            "listen = \"127.0.0.1:1\"\nstuck_afer = \"5m\"",
            "oncebox.toml:26: `stuck_afer` is not a field of [metrics]; did you mean `stuck_after`?",
        ),
        (
            "listen = \"127.0.0.1:1\"\nstuck_after = \"1s\"",
            "oncebox.toml:26: `stuck_after` in [metrics]: shorter than 10s says nothing of a backlog",
        ),
    ] {
        let mistakes = with(metrics).unwrap_err();
        assert!(mistakes.iter().any(|line| line.contains(expected)), "{expected}\n{mistakes:#?}");
    }
}

#[test]
fn each_mistake_is_told_with_its_line_and_what_to_do() {
    for (from, to, expected) in [
        (
            "retention",
            "retenton",
            "oncebox.toml:10: `retenton` is not a field of [[consumer]]; did you mean `retention`?",
        ),
        ("[relay]", "[raley]", "oncebox.toml:21: `raley` is not a field of the file; did you mean `relay`?"),
        (
            "\"30d\"",
            "\"30 days\"",
            "oncebox.toml:10: `retention` in [[consumer]]: `30 days` is no duration; write 200ms, 30s, 5m, 12h or 30d",
        ),
        ("\"30d\"", "30", "oncebox.toml:10: `retention` in [[consumer]]: expected a text, found a number"),
        ("name = \"invoices\"\n", "", "oncebox.toml:5: [[consumer]] has no `name`"),
        (
            "queue:payments",
            "qeue:payments",
            "oncebox.toml:7: `from` in [[consumer]]: it is no address; write queue:NAME",
        ),
        (
            "payment:{payment_id}",
            "mesage-id",
            "oncebox.toml:8: `key` in [[consumer]]: `mesage-id` is no key; did you mean `message-id`?",
        ),
        ("${PASSWORD}", "${PASWORD}", "oncebox.toml:22: `to` in [relay]: the environment has no `PASWORD`; set it"),
        ("sqlite://shop.db", "mysql://u:CANARY@h/d", "oncebox.toml:3: `url` in [store]: this store is not built yet"),
        (":amount", "'", "oncebox.toml:16: element 1 of `sql` in [[consumer.on]]: a quote ' is never closed"),
        (
            "{invoice_id}\", payload",
            "{invoice_id\", payload",
            "oncebox.toml:19: `key` in `emit`: a `{` is never closed",
        ),
        ("topic = ", "topc = ", "oncebox.toml:19: `topc` is not a field of `emit`; did you mean `topic`?"),
        (
            "attempts = 8",
            "attempts = 0",
            "oncebox.toml:11: `attempts` in `retry`: the first time counts: write at least 1",
        ),
        ("type = \"payment.received\"", "type = \"\"", "oncebox.toml:14: `type` in [[consumer.on]]: it is empty"),
        ("topic = \"invoices\"", "topic = \"\"", "oncebox.toml:19: `topic` in `emit`: it is empty"),
        (
            "\"update invoices set",
            "\"/* ; */ Commit; update invoices set",
            "oncebox.toml:16: element 1 of `sql` in [[consumer.on]]: `Commit` steers the transaction, which is Oncebox's own",
        ),
        ("first = \"200ms\"", "first = \"6m\"", "oncebox.toml:11: `retry`: `first` is longer than `max`"),
        (
            "  type = \"payment.received\"\n",
            "  type = \"payment.received\"\n  http = { url = \"http://h\" }\n",
            "oncebox.toml:15: `http` in [[consumer.on]]: effects can't be run from a file yet; leave it out",
        ),
        (
            "order_by = \"{invoice_id}\"",
            "version = \"{version}\"",
            "oncebox.toml:5: `version` in [[consumer]] needs `order_by`",
        ),
        ("[store]", "[store", "oncebox.toml:2: this is not TOML"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let said = read(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(said.iter().any(|line| line.starts_with(expected)), "{from} -> {to}: {said:#?}");
        assert!(!said.concat().contains("CANARY"), "{said:#?}");
    }
}

#[test]
fn consumers_that_take_messages_from_each_other_are_refused() {
    let file = |one: &str, two: &str| {
        let consumer = |name: &str, from: &str| {
            format!(
                "[[consumer]]\nname = \"{name}\"\nfrom = \"{from}\"\n[[consumer.on]]\ntype = \"t\"\nsql = \"select 1\"\n"
            )
        };
        format!("[store]\nurl = \"sqlite://shop.db\"\n{}{}", consumer("a", one), consumer("b", two))
    };
    for place in ["queue:q", "amqp://u:CANARY@h/v/q", "nats://h/s/d"] {
        let said = read(&file(place, place)).unwrap_err().concat();
        assert!(said.starts_with("oncebox.toml:9: consumers `a` and `b` both receive from "), "{said}");
        assert!(said.contains("each message would reach only one of them") && !said.contains("CANARY"), "{said}");
    }
    for (one, two) in [
        ("queue:q", "queue:r"),
        ("amqp://h/v/q", "amqp://h/v/r"),
        ("nats://h/s", "nats://h/s"),
        ("nats://h/s/d", "nats://h/s/e"),
        ("kafka://h/t", "kafka://h/t"),
    ] {
        assert!(read(&file(one, two)).is_ok(), "{one} and {two}");
    }
}

#[test]
fn sections_that_are_planned_are_refused_with_a_word_of_their_own() {
    let sections = [
        ("effect", "effects"),
        ("saga", "sagas"),
        ("projection", "projections"),
        ("http", "keys of HTTP requests"),
        ("console", "the console"),
    ];
    for (name, what) in sections {
        let said = read(&format!("{GOOD}\n[{name}]\nx = 1\n")).unwrap_err();
        let expected = format!("`{name}` in the file: {what} can't be run from a file yet; leave it out");
        assert!(said.len() == 1 && said[0].ends_with(&expected), "{said:#?}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_their_lines() {
    let bad = GOOD.replace("sqlite:", "sqlight:").replace("200ms", "soon").replace("expect = 1", "expect = -1");
    let said = read(&bad).unwrap_err();
    let lines: Vec<&str> = said.iter().map(|line| line.split(':').nth(1).unwrap()).collect();
    assert_eq!(lines, ["3", "11", "17"], "{said:#?}");
}

proptest! {
    /// A file is what people make of it.
    #[test]
    fn no_file_makes_it_panic(cut in 0..GOOD.len(), junk in "[\\PC\n\"\\[\\]{}=:$.]{0,20}", length in 0..40_usize) {
        let start = GOOD.floor_char_boundary(cut);
        let end = GOOD.floor_char_boundary((start + length).min(GOOD.len()));
        let text = format!("{}{junk}{}", &GOOD[..start], &GOOD[end..]);
        if let Err(said) = read(&text) {
            prop_assert!(!said.is_empty());
            prop_assert!(!said.concat().contains("CANARY"));
        }
    }
}

#[test]
fn a_journal_is_asked_for_before_it_is_kept_for_a_time() {
    let with = |fields: &str| read(&GOOD.replace("retention = \"30d\"", fields));
    let kept = |fields: &str| with(fields).unwrap().consumers[0].journal.map(|kept| kept.as_secs() / 3600);
    assert_eq!((kept(""), kept("journal = false")), (None, None));
    assert_eq!((kept("journal = true"), kept("journal = true\njournal_for = \"36h\"")), (Some(7 * 24), Some(36)));
    let wrong = with("journal_for = \"7d\"").unwrap_err();
    assert_eq!(wrong, ["oncebox.toml:10: `journal_for` in [[consumer]] needs `journal = true`"]);
    let wrong = with("journal = true\njournal_for = \"59m\"").unwrap_err().join("");
    assert!(wrong.contains("`59m` is too short: a journal is kept for an hour at least"), "{wrong}");
}
