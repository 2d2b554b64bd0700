use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn message() -> Message {
    let mut message = Message::new("invoice.paid").with_order_key("i-1").with_version(7).with_payload(r#"{"a":1}"#);
    message.source = Some("billing".to_owned());
    message.headers.add("traceparent", "00-aa-bb-01").unwrap();
    message
}

fn read(spelling: Spelling, headers: &[(String, Vec<u8>)], payload: &Bytes) -> Message {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    spelling.read(headers, payload.clone(), "unknown", Timestamp::UNIX_EPOCH)
}

#[test]
fn what_is_written_reads_the_same() {
    for spelling in [Spelling::KAFKA, Spelling::NATS, Spelling::AMQP] {
        let sent = message();
        assert_eq!(read(spelling, &spelling.write(&sent, Some("us")), &sent.payload), sent);
        let nameless = Message { source: None, ..sent };
        assert_eq!(read(spelling, &spelling.write(&nameless, None), &nameless.payload), nameless);
        let named = read(spelling, &spelling.write(&nameless, Some("us")), &nameless.payload);
        assert_eq!(named.source.as_deref(), Some("us"));
    }
}

#[test]
fn a_structured_event_is_unpacked() {
    for payload in [&br#"{"a":1}"#[..], b"\xff\x00 not text"] {
        let sent = message().with_payload(Bytes::copy_from_slice(payload));
        let body = Bytes::from(structured(&sent, Some("us")));
        let headers = vec![("content-type".to_owned(), format!("{STRUCTURED}; charset=utf-8").into_bytes())];
        let back = read(Spelling::NATS, &headers, &body);
        assert_eq!((back.id, back.kind, back.order_key), (sent.id, sent.kind, sent.order_key));
        assert_eq!((back.source, back.version, back.payload), (sent.source, sent.version, sent.payload));
    }
}

fn unpacked(event: &str) -> Message {
    let headers = vec![("content-type".to_owned(), STRUCTURED.as_bytes().to_vec())];
    read(Spelling::NATS, &headers, &Bytes::from(event.to_owned()))
}

#[test]
fn data_is_cut_out_of_a_structured_event_as_it_was_written() {
    for data in [
        r#"{"amount":123456789012345678.91,"b":1.10,"a":1E5}"#,
        "1e999999999",
        r#"{"a":1,"a":2}"#,
        r#"{ "b" : 1,  "a":"\ud800" }"#,
        "null",
        "\"text\"",
        &format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)),
    ] {
        let event = format!(r#"{{"specversion":"1.0","id":"1","type":"t","data": {data} }}"#);
        assert_eq!(unpacked(&event).payload, *data);
        let sent = message().with_payload(data.to_owned());
        let body = String::from_utf8(structured(&sent, None)).unwrap();
        assert_eq!(unpacked(&body).payload, *data);
        assert!(body.contains(r#""datacontenttype":"application/json""#), "other readers go by it: {body}");
    }
}

#[test]
fn the_other_parts_of_a_structured_event_are_read() {
    let back = unpacked(
        r#"{"id":"1","type":"t","onceboxversion":7,"ratio":1.10,"datacontenttype":"text/plain","data":"a\nb"}"#,
    );
    assert_eq!((back.version, back.headers.get("ratio"), &back.payload[..]), (Some(7), Some("1.10"), &b"a\nb"[..]));
    assert_eq!(unpacked(r#"{"id":"1","type":"t","data_base64":"YQ=="}"#).payload, "a");
    assert_eq!(unpacked(r#"{"id":"1","type":"t"}"#).payload, "");
    for none in [r#"{"data":1,"data_base64":"YQ=="}"#, r#"{"data_base64":1}"#, "[]", r#"{"id":"1""#] {
        let back = unpacked(none);
        assert_eq!((back.payload, back.headers.get("content-type")), (Bytes::from(none), Some(STRUCTURED)));
    }
}

/// CloudEvents, JSON format 2.2: a null attribute is the same as one that is left out.
#[test]
fn an_attribute_that_is_null_is_not_set() {
    let back = unpacked(
        r#"{"specversion":"1.0","id":null,"source":null,"type":null,"time":null,"partitionkey":null,
            "onceboxversion":null,"datacontenttype":null,"dataschema":null,"other":null,"data":{"n":1}}"#,
    );
    assert_eq!((back.id, back.source, back.order_key, back.version), (None, None, None, None));
    assert_eq!((back.kind.as_str(), back.time), ("unknown", Timestamp::UNIX_EPOCH));
    assert_eq!((back.headers.iter().count(), &back.payload[..]), (0, &br#"{"n":1}"#[..]));
}

#[test]
fn an_event_whose_id_is_null_keeps_the_one_beside_it() {
    let headers = [("content-type", STRUCTURED.as_bytes()), (ID_HEADER, b"a-1")];
    let event = Bytes::from(r#"{"id":null,"data":1}"#);
    let back = Spelling::AMQP.read(headers, event, "t", Timestamp::UNIX_EPOCH);
    assert_eq!(back.id, Some(MessageId::new("a-1").unwrap()));
}

#[test]
fn of_data_and_its_base64_the_one_that_is_null_is_not_there() {
    for (event, payload) in [
        (r#"{"id":"1","data":{"n":1},"data_base64":null}"#, r#"{"n":1}"#),
        (r#"{"id":"1","data":null,"data_base64":"YQ=="}"#, "a"),
        (r#"{"id":"1","data":null,"data_base64":null}"#, "null"),
        (r#"{"id":"1","data":null}"#, "null"),
        (r#"{"id":"1","data_base64":null}"#, ""),
    ] {
        let back = unpacked(event);
        assert_eq!((back.id.unwrap().as_str(), &back.payload[..]), ("1", payload.as_bytes()), "{event}");
    }
}

#[test]
fn what_makes_no_sense_is_not_lost() {
    let headers = [
        ("ce_id", &b""[..]),
        ("ce_time", b"yesterday"),
        ("ce_onceboxversion", b"-1"),
        ("ce_type", b"\xff"),
        ("x", b"\xff\xfe"),
        ("y", b"a\r\nb"),
        ("", b"nameless"),
        ("content-type", STRUCTURED.as_bytes()),
    ];
    let back = Spelling::KAFKA.read(headers, Bytes::from("not json"), "topic", Timestamp::UNIX_EPOCH);
    assert_eq!((back.id, back.kind.as_str(), back.time), (None, "hex:ff", Timestamp::UNIX_EPOCH));
    assert_eq!(back.payload, "not json");
    assert_eq!(decoded("x;base64", back.headers.get("x;base64").unwrap()), ("x".to_owned(), vec![0xff, 0xfe]));
    assert_eq!(decoded("y;base64", back.headers.get("y;base64").unwrap()).1, b"a\r\nb");
    assert_eq!(back.headers.get("content-type"), Some(STRUCTURED));
}

/// Equal payloads under two order keys, and one id of two sources, are two messages.
#[test]
fn what_tells_messages_apart_does_so_though_it_is_no_text() {
    let read =
        |name: &str, value: &[u8]| Spelling::AMQP.read([(name, value)], Bytes::from("{}"), "t", Timestamp::UNIX_EPOCH);
    let both = |name: &str| (read(name, b"m\xfcller"), read(name, b"m\xf6ller"));
    let (one, other) = both("cloudEvents:partitionkey");
    assert_eq!(one.order_key.as_deref(), Some("hex:6dfc6c6c6572"));
    assert_ne!(one.order_key, other.order_key);
    let (one, other) = both("cloudEvents:source");
    assert_ne!(one.source, other.source);
    let (one, other) = both("cloudEvents_Type");
    assert_ne!(one.kind, other.kind);
    for name in ["cloudEvents:id", "oncebox-id"] {
        let (one, other) = both(name);
        assert_ne!(one.id.unwrap(), other.id.unwrap());
    }
    assert_eq!(text_of("m\u{fc}ller".as_bytes()), "m\u{fc}ller");
}

/// A header may be as large as a message. Each byte is written once.
#[test]
fn a_megabyte_that_is_no_text_is_read_at_once() {
    let large = vec![0xff; 4 << 20];
    let read = Spelling::KAFKA.read([("ce_partitionkey", &large[..])], Bytes::new(), "t", Timestamp::UNIX_EPOCH);
    assert_eq!(read.order_key.map(|key| key.len()), Some(4 + (8 << 20)));
}

#[test]
fn an_id_for_those_who_speak_no_cloud_events_is_read() {
    let back = Spelling::AMQP.read([("oncebox-id", &b"a-1"[..])], Bytes::new(), "t", Timestamp::UNIX_EPOCH);
    assert_eq!(back.id, Some(MessageId::new("a-1").unwrap()));
}

const ALL: [Spelling; 3] = [Spelling::KAFKA, Spelling::NATS, Spelling::AMQP];

/// Names that mean something to one of the spellings or look as if they did, in some spelling of their own.
fn name() -> impl Strategy<Value = String> {
    let prefixes = ["", "ce_", "ce-", "CE_", "cloudEvents:", "cloudEvents_", "cloudevents:", "x-"];
    let names = [
        "id",
        "ID",
        "source",
        "type",
        "time",
        "partitionkey",
        "onceboxversion",
        "specversion",
        "oncebox-id",
        "Oncebox-Id",
        "content-type",
        "delivery-count",
        "CC",
        "other",
        "caf\u{e9}",
        "",
    ];
    let suffixes = ["", ";own", ";own;own", ";base64", ";base64;own", ";own;base64", ";OWN", ";percent"];
    let made = (select(prefixes.to_vec()), select(names.to_vec()), select(suffixes.to_vec()));
    let made = made.prop_map(|(prefix, name, suffix)| format!("{prefix}{name}{suffix}"));
    prop_oneof![4 => made, 1 => "[^\\pC]{1,12}"].prop_filter("a header has a name", |name| !name.is_empty())
}

fn value() -> impl Strategy<Value = String> {
    let values =
        ["spoofed", "", "1.0", "7", "2020-01-01T00:00:00Z", STRUCTURED, "/wD+DQo=", "aGVsbG8=", "aGVsbG8", "%41"];
    prop_oneof![4 => select(values.to_vec()).prop_map(str::to_owned), 1 => "[^\\pC]{0,12}"]
}

proptest! {
    /// Whatever a message's own headers are called, they are headers when it arrives, and nothing else of it changes.
    #[test]
    fn no_header_passes_for_an_attribute(
        headers in vec((name(), value()), 0..6),
        parts in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let mut sent = Message::new("invoice.paid").with_payload("{}");
        let (has_source, has_key, has_version) = parts;
        sent.source = has_source.then(|| "billing".to_owned());
        sent.order_key = has_key.then(|| "i-1".to_owned());
        sent.version = has_version.then_some(7);
        for (name, value) in &headers {
            sent.headers.add(name, value).unwrap();
        }
        for spelling in ALL {
            let written = spelling.write(&sent, None);
            let back = read(spelling, &written, &sent.payload);
            prop_assert_eq!(back.headers.iter().collect::<Vec<_>>(), sent.headers.iter().collect::<Vec<_>>());
            prop_assert!(back == sent, "{:?} {:?}", spelling, written);
            let parts = written.len() - sent.headers.iter().count();
            prop_assert_eq!(&written[parts..], &spelling.own_headers(&sent)[..]);
        }
    }
}

#[test]
fn what_others_call_their_headers_stays() {
    let headers =
        [("x;own", &b"1"[..]), ("cloudEvents_id", b"a-1"), ("cloudEvents_extension", b"e"), ("y;base64", b"z")];
    let back = Spelling::AMQP.read(headers, Bytes::new(), "t", Timestamp::UNIX_EPOCH);
    assert_eq!(back.id, Some(MessageId::new("a-1").unwrap()));
    let names: Vec<&str> = back.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x;own", "cloudEvents_extension", "y;base64"]);
}
