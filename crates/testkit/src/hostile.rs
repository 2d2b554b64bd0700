//! Texts that databases, brokers and drivers are known to change on the way.

use oncebox_core::{Message, MessageId};

use crate::clock::ManualClock;

/// Each is a legal id, type, source, order key and header value.
pub(crate) const TEXTS: &[&str] = &[
    " ",
    " leading and trailing ",
    "UPPER lower",
    "'; drop table queue; --",
    "\"quoted\" \\back\\slashed\\ `ticked`",
    "%s %d $1 ? :name {0} ${HOME}",
    "caf\u{e9} cafe\u{301}",
    "\u{feff}marked\u{200b}and\u{202e}turned",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{10ffff}",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{4f60}\u{597d}",
    "null",
    "{\"json\":[1,2]}",
    "<xml attr='1'>&amp;</xml>",
    "a=b&c=d%20e,f;g",
];

/// Headers whose names mean something to some broker or spelling, each with what would do harm there.
pub(crate) const NAMED: &[(&str, &str)] = &[
    ("ce_id", "spoofed"),
    ("CE_Type", "spoofed"),
    ("ce_partitionkey", "spoofed"),
    ("ce_onceboxversion", "7"),
    ("ce_specversion", "0.1"),
    ("ce-id", "spoofed"),
    ("Ce-Source", "spoofed"),
    ("ce-time", "2020-01-01T00:00:00Z"),
    ("cloudEvents:id", "spoofed"),
    ("cloudEvents_type", "spoofed"),
    ("oncebox-id", "spoofed"),
    ("content-type", "application/cloudevents+json"),
    ("Nats-Msg-Id", "spoofed"),
    ("Nats-Rollup", "all"),
    ("x-delivery-count", "99"),
    ("CC", "elsewhere"),
    ("BCC", "elsewhere"),
    ("ce_id;own", "own"),
    ("x;own", "own"),
    ("x;base64", "aGVsbG8="),
];

/// A message with `text` wherever a text can be, and in its payload.
pub(crate) fn message(text: &str) -> Message {
    let mut message = Message::made_by(&ManualClock::new(), text)
        .with_id(MessageId::new(text).expect("the texts make ids"))
        .with_source(text)
        .with_order_key(text)
        .with_payload(text.to_owned());
    // The same name twice, in order, and an empty value: a map would lose them.
    for (name, value) in [("x-text", text), ("x-empty", ""), ("x-text", "second"), ("X-Text", "other case")] {
        message.headers.add(name, value).expect("the texts make header values");
    }
    message
}

/// Panics naming the part that differs. `Message` itself prints only sizes.
#[track_caller]
pub(crate) fn assert_same(got: &Message, sent: &Message) {
    assert_eq!(got.id, sent.id);
    assert_eq!(got.source, sent.source);
    assert_eq!(got.kind, sent.kind);
    assert_eq!(got.order_key, sent.order_key);
    assert_eq!(got.version, sent.version);
    assert_eq!(got.time, sent.time);
    let pairs = |message: &Message| -> Vec<(String, String)> {
        message.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    assert_eq!(pairs(got), pairs(sent));
    assert!(got.payload == sent.payload, "the payload of {} changed on its way", sent.label());
    assert!(got == sent, "a part of {} changed on its way", sent.label());
}

/// The same for what went through a broker, whose headers may be a map: their order counts only under one name.
#[track_caller]
pub(crate) fn assert_same_on_the_wire(got: &Message, sent: &Message) {
    let sorted = |message: &Message| {
        let mut pairs: Vec<(String, String)> =
            message.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        let mut message = message.clone();
        message.headers = oncebox_core::Headers::default();
        for (name, value) in pairs {
            message.headers.add(name, value).expect("they were headers before");
        }
        message
    };
    assert_same(&sorted(got), &sorted(sent));
}
