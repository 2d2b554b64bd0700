//! Messages to headers and back, so that what a NATS header can't carry still arrives as it was.
//!
//! ```text
//!  ce-…            percent-encoded, as the CloudEvents binding says
//!  name;base64     a value with line breaks, other control characters, bytes that are no text, or spaces at its ends
//!  name;percent    a name with spaces, colons or non-ASCII letters, one that the server obeys (Nats-Rollup empties a
//!                  stream), or one that would be taken for something else on arrival
//! ```

use std::collections::HashSet;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oncebox_core::cloud_events::{STRUCTURED, Spelling, structured, text_of};
use oncebox_core::{Message, MessageId, Timestamp};
use sha2::{Digest as _, Sha256};

/// The header that the server itself recognises messages by.
pub(crate) const NATS_ID: &str = "Nats-Msg-Id";

/// Conditions under which the server was to store the message.
const EXPECTED: &str = "Nats-Expected-";

/// What stands between a message's id and the digest of its topic and source.
const PLACE: char = '@';
const PLACE_BYTES: usize = 16;

const ATTRIBUTE: &str = "ce-";
const CONTENT_TYPE: &str = "content-type";
const BASE64: &str = ";base64";
const PERCENT: &str = ";percent";

/// How a message goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Attributes among the headers, the payload as it is.
    #[default]
    Binary,
    /// One JSON document.
    Structured,
}

/// Headers and body of a message. `source` stands in where it names none.
pub(crate) fn write(message: &Message, source: Option<&str>, mode: Mode) -> (HeaderMap, Bytes) {
    let mut map = HeaderMap::new();
    let all = Spelling::NATS.write(message, source);
    // The message's own headers come last, so what is written before them is ours.
    let attributes = all.len() - message.headers.iter().count();
    // All values of a name or none, because values under two names lose their order.
    let encoded: HashSet<&str> =
        all[attributes..].iter().filter(|(_, value)| text(value).is_none()).map(|(name, _)| name.as_str()).collect();
    for (n, (name, value)) in all.iter().enumerate() {
        match mode {
            Mode::Binary if n < attributes => append(&mut map, name, percent(value)),
            Mode::Structured if n < attributes || name.eq_ignore_ascii_case(CONTENT_TYPE) => {}
            _ => append_own(&mut map, name, value, encoded.contains(name.as_str())),
        }
    }
    match mode {
        Mode::Binary => (map, message.payload.clone()),
        Mode::Structured => {
            append(&mut map, CONTENT_TYPE, STRUCTURED.to_owned());
            (map, structured(message, source).into())
        }
    }
}

/// What the server is told to recognise the message by. It knows messages by this alone, whatever their subject and source
/// are, and remembers it when they are gone and cannot be compared: so all that makes a message this one is part of it.
pub(crate) fn nats_id(id: &MessageId, topic: &str, source: Option<&str>) -> String {
    let mut hash = Sha256::new();
    hash.update((topic.len() as u64).to_be_bytes());
    hash.update(topic);
    if let Some(source) = source {
        hash.update([1]);
        hash.update(source);
    }
    let mut text = nats_id_alone(id);
    text.push(PLACE);
    for byte in &hash.finalize()[..PLACE_BYTES] {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// As others write it.
fn nats_id_alone(id: &MessageId) -> String {
    percent(id.as_str().as_bytes())
}

/// Whether it says nothing but the id, as others write it or as we do.
fn says(nats_id: &str, id: &MessageId) -> bool {
    let Some(rest) = nats_id.strip_prefix(&nats_id_alone(id)) else { return false };
    let is_place = |rest: &str| rest.len() == 2 * PLACE_BYTES && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.is_empty() || rest.strip_prefix(PLACE).is_some_and(is_place)
}

/// A message from what was delivered. Its type is `subject` where no attribute names one.
pub(crate) fn read(headers: Option<&HeaderMap>, payload: Bytes, subject: &str, stored_at: Timestamp) -> Message {
    let pairs = sorted(headers).into_iter().map(|(name, value)| (name, value.as_bytes())).collect();
    read_pairs(pairs, payload, subject, stored_at)
}

/// The same, from names and values as bytes, in the order of the names.
pub(crate) fn read_pairs(headers: Vec<(&str, &[u8])>, payload: Bytes, subject: &str, stored_at: Timestamp) -> Message {
    let mut known: Vec<(String, Vec<u8>)> = Vec::new();
    // Not to be taken for anything but headers.
    let mut plain: Vec<(String, Vec<u8>)> = Vec::new();
    let mut by_server = None;
    for (name, value) in headers {
        let (name, value) = match name.strip_suffix(BASE64).and_then(|name| Some((name, STANDARD.decode(value).ok()?)))
        {
            Some(raw) => raw,
            None => (name, value.to_vec()),
        };
        if starts_with(name, EXPECTED) && !name.ends_with(PERCENT) {
            // What the publisher asked of the server is no part of the message.
            continue;
        }
        if let Some(name) =
            name.strip_suffix(PERCENT).and_then(|name| String::from_utf8(unpercent(name.as_bytes())).ok())
        {
            plain.push((name, value));
        } else if name.eq_ignore_ascii_case(NATS_ID) && by_server.is_none() {
            by_server = Some(text_of(&value).into_owned());
        } else if is_attribute(name) {
            known.push((name.to_owned(), unpercent(&value)));
        } else {
            known.push((name.to_owned(), value));
        }
    }
    let known = known.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    let mut message = Spelling::NATS.read(known, payload, subject, stored_at);
    if let Some(id) = by_server {
        match &message.id {
            None => message.id = MessageId::new(id).ok(),
            // It says what is known already.
            Some(known) if says(&id, known) => {}
            Some(_) => plain.push((NATS_ID.to_owned(), id.into_bytes())),
        }
    }
    for (name, value) in plain {
        let text = std::str::from_utf8(&value).ok().filter(|text| !text.chars().any(char::is_control));
        // Only a name that no header can have is left out.
        let _ = match text {
            Some(text) => message.headers.add(name, text),
            None => message.headers.add(format!("{name}{BASE64}"), STANDARD.encode(&value)),
        };
    }
    message
}

/// By name, because the client library's map has no order of its own, and two deliveries of one message must be equal.
fn sorted(headers: Option<&HeaderMap>) -> Vec<(&str, &str)> {
    let mut all: Vec<(&str, &str)> = headers
        .into_iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| values.iter().map(move |value| (name.as_ref(), value.as_str())))
        .collect();
    all.sort_by_key(|(name, _)| *name);
    all
}

fn append_own(map: &mut HeaderMap, name: &str, value: &[u8], is_encoded: bool) {
    // That it does not pass for an attribute, its name makes sure already.
    let is_taken = starts_with(name, "nats-") || name.ends_with(BASE64) || name.ends_with(PERCENT);
    let carried = name.parse::<HeaderName>().is_ok() && !is_taken;
    let name = if carried { name.to_owned() } else { format!("{}{PERCENT}", percent_name(name)) };
    if is_attribute(&name) {
        return append(map, &name, percent(value));
    }
    match text(value).filter(|_| !is_encoded) {
        Some(text) => append(map, &name, text.to_owned()),
        None => append(map, &format!("{name}{BASE64}"), STANDARD.encode(value)),
    }
}

/// A value that a header can carry as it is.
fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control) && text.trim() == *text)
}

fn append(map: &mut HeaderMap, name: &str, value: String) {
    // Both are made to fit above; the checking constructors make sure that a mistake there cannot panic.
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
        map.append(name, value);
    }
}

fn is_attribute(name: &str) -> bool {
    starts_with(name, ATTRIBUTE) && !name.ends_with(PERCENT)
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Everything but visible ASCII becomes `%XX`, and so do `"` and `%`.
fn percent(value: &[u8]) -> String {
    encode(value, |byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'%')
}

fn percent_name(name: &str) -> String {
    encode(name.as_bytes(), |byte| byte.is_ascii_graphic() && byte != b':' && byte != b'%')
}

fn encode(bytes: &[u8], keep: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if keep(byte) {
            text.push(char::from(byte));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    text
}

/// A `%` that is not followed by two digits stands for itself: others may not have encoded theirs.
fn unpercent(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |n: usize| bytes.get(at + n).and_then(|&byte| char::from(byte).to_digit(16));
        match (bytes[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(message: &Message, mode: Mode) -> Message {
        let (headers, body) = write(message, None, mode);
        read(Some(&headers), body, "a.subject", Timestamp::UNIX_EPOCH)
    }

    fn with_headers(headers: &[(&str, &str)]) -> Message {
        let mut message = Message::new("noted").with_source("s").with_payload("{}");
        for (name, value) in headers {
            message.headers.add(*name, *value).unwrap();
        }
        message
    }

    fn pairs(message: &Message) -> Vec<(String, String)> {
        let mut pairs: Vec<_> = message.headers.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs
    }

    #[test]
    fn headers_that_nats_cannot_carry_come_back_as_they_were() {
        let sent = with_headers(&[
            (" spaced name ", " spaced value "),
            ("caf\u{e9}:colon%41", "\u{2003}wide\u{2003}"),
            ("x;base64", "not base64!"),
            ("raw;base64", "/wD+DQo="),
            ("x;percent", "%41"),
            ("Nats-Rollup", "all"),
            ("nats-expected-stream", "OTHER"),
            ("ce-id", "spoofed"),
            ("CE-Type", "spoofed"),
            ("ce-extension", "caf\u{e9} 100% \"quoted\""),
            ("oncebox-id", "spoofed"),
            ("empty", ""),
            ("twice", " first "),
            ("twice", "second"),
        ]);
        for mode in [Mode::Binary, Mode::Structured] {
            let back = there_and_back(&sent, mode);
            assert_eq!((&back.id, &back.kind, &back.source), (&sent.id, &sent.kind, &sent.source), "{mode:?}");
            let mut got = pairs(&back);
            got.retain(|(name, _)| name != "content-type");
            assert_eq!(got, pairs(&sent), "{mode:?}");
        }
    }

    #[test]
    fn no_header_of_a_message_gives_orders_to_the_server() {
        let sent = with_headers(&[("Nats-Rollup", "all"), ("NATS-TTL", "1s"), ("Nats-Msg-Id", "x")]);
        let (headers, _) = write(&sent, None, Mode::Binary);
        for (name, _) in headers.iter() {
            let name: &str = name.as_ref();
            assert!(!name.to_ascii_lowercase().starts_with("nats-") || name.ends_with(PERCENT), "{name}");
        }
    }

    #[test]
    fn attributes_come_back_whatever_they_hold() {
        for text in ["a\r\nNats-Rollup: all\r\n\r\n", " ", "100%41", "\"\u{1f468}\"", "\u{7f}\0", "%", "%4", "%zz"] {
            let id = MessageId::new(text).unwrap();
            let sent = Message::new(text).with_id(id.clone()).with_source(text).with_order_key(text);
            let (headers, _) = write(&sent, None, Mode::Binary);
            for (_, values) in headers.iter() {
                assert!(values.iter().all(|value| value.as_str().bytes().all(|byte| byte.is_ascii_graphic())));
            }
            assert!(nats_id(&id, "topic", None).bytes().all(|byte| byte.is_ascii_graphic()));
            let back = there_and_back(&sent, Mode::Binary);
            assert_eq!(
                (back.id, back.kind, back.source, back.order_key),
                (sent.id, sent.kind, sent.source, sent.order_key)
            );
        }
    }

    #[test]
    fn identity_is_taken_from_the_best_place() {
        let read = |headers: &[(&str, &str)]| {
            let mut map = HeaderMap::new();
            headers.iter().for_each(|(name, value)| map.append(*name, *value));
            let message = read(Some(&map), Bytes::new(), "orders.new", Timestamp::UNIX_EPOCH);
            (message.id.map(|id| id.as_str().to_owned()), message.kind, message.headers.get(NATS_ID).map(str::to_owned))
        };
        let subject = || "orders.new".to_owned();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read(&[(NATS_ID, "n%41")]), (text("n%41"), subject(), None));
        assert_eq!(read(&[(NATS_ID, "n"), ("oncebox-id", "o")]), (text("o"), subject(), text("n")));
        assert_eq!(read(&[(NATS_ID, "n"), ("ce-id", "c"), ("ce-type", "t")]), (text("c"), "t".to_owned(), text("n")));
        assert_eq!(read(&[(NATS_ID, "c"), ("ce-id", "c")]), (text("c"), subject(), None));
        assert_eq!(read(&[]), (None, subject(), None));
    }
}
