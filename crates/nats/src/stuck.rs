//! A message that the client library breaks its connection on, read another way.
//!
//! ```text
//!  server ──delivery──▶ client library ──✗ headers that it cannot read: connection lost, nothing handed out
//!         ◀──which one is unsettled?──
//!         ◀──message by number─────── bytes and all, as JSON
//! ```
//!
//! With one delivery under way at a time, everything behind such a message waits for it. There is no doubt which one it is
//! then, and what settles it can be said without having received it.

use std::sync::Arc;

use async_nats::Request;
use async_nats::header::{HeaderName, HeaderValue};
use async_nats::jetstream::AckKind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oncebox_core::{Delivery, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::{self, Trouble};
use crate::headers;
use crate::link::ANSWER_MAX;
use crate::place::Place;
use crate::receipt::{JetStreamReceipt, lease_end};
use crate::source::Open;

/// What a line among the headers that is no header comes along as.
const UNREADABLE: &str = "oncebox-unreadable-header";

/// JetStream's code for a number that no message has.
const NO_MESSAGE: u64 = 10_037;

/// The unsettled message of a consumer that has one at a time, if the client library cannot read it. `None`: it can, or
/// there is none.
pub(crate) async fn find(open: &Open) -> Result<Option<Delivery<JetStreamReceipt>>, Trouble> {
    let info = open.consumer.get_info().await.map_err(|error| error::consumer(&error.kind()))?;
    if info.num_ack_pending != 1 {
        return Ok(None);
    }
    // Nothing is delivered while one is unsettled, so it is the last that was.
    let sequence = info.delivered.stream_sequence;
    let Some(raw) = read(open, &info.stream_name, sequence).await? else { return Ok(None) };
    if is_readable(&raw.headers) {
        return Ok(None);
    }
    // As the server wrote it on the delivery. Which delivery it was matters to nothing but counts.
    let (stream, name, consumer_sequence) = (&info.stream_name, &info.name, info.delivered.consumer_sequence);
    let stored_at = raw.stored_at.as_nanosecond();
    let reply = format!("$JS.ACK.{stream}.{name}.1.{sequence}.{consumer_sequence}.{stored_at}.{}", info.num_pending);
    let Some(place) = Place::read(&reply) else { return Ok(None) };
    let from = Instant::now();
    // It is ours from here on, if the server hears of it.
    let extend = Request::new().payload(AckKind::Progress.into()).timeout(Some(ANSWER_MAX));
    if open.link.client.send_request(reply.clone(), extend).await.is_err() {
        return Err(unsettled(stream, sequence));
    }
    let lines = lines(&raw.headers);
    let pairs = lines.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let message = headers::read_pairs(pairs, raw.payload, &raw.subject, place.time());
    let receipt =
        JetStreamReceipt::new(reply.as_str().into(), lease_end(from, open.settings.lease), Arc::clone(&open.room));
    let mut delivery = Delivery::new(message, receipt);
    open.room.take(delivery.receipt());
    delivery.coordinate = Some(place.coordinate());
    // The server counts, and tells in what cannot be read.
    delivery.count = Some(1);
    delivery.is_uncounted = true;
    Ok(Some(delivery))
}

/// A message as the stream holds it.
struct Raw {
    subject: String,
    headers: Vec<u8>,
    payload: Bytes,
    stored_at: Timestamp,
}

/// Reads a message by its number; `None` if it is gone.
async fn read(open: &Open, stream: &str, sequence: u64) -> Result<Option<Raw>, Trouble> {
    let asked = open.link.context.request(format!("STREAM.MSG.GET.{stream}"), &json!({ "seq": sequence })).await;
    // A server that is busy does not answer, and neither does one that this user may not ask.
    let answer: Value = asked.map_err(|_| Trouble::later(unread(stream, sequence)))?;
    if let Some(error) = answer.get("error") {
        let number = |name: &str| error.get(name).and_then(Value::as_u64).unwrap_or_default();
        return match (number("err_code"), number("code")) {
            (NO_MESSAGE, _) => Ok(None),
            (_, 500..) => Err(Trouble::later(unread(stream, sequence))),
            _ => Err(Trouble::setting(unread(stream, sequence))),
        };
    }
    answer.get("message").and_then(raw).map(Some).ok_or_else(|| Trouble::setting(unread(stream, sequence)))
}

fn raw(message: &Value) -> Option<Raw> {
    let text = |name: &str| message.get(name).and_then(Value::as_str);
    let bytes = |name: &str| STANDARD.decode(text(name).unwrap_or_default()).ok();
    Some(Raw {
        subject: text("subject")?.to_owned(),
        headers: bytes("hdrs")?,
        payload: bytes("data")?.into(),
        stored_at: text("time")?.parse().ok()?,
    })
}

fn unread(stream: &str, sequence: u64) -> String {
    format!(
        "the connection was lost while message {sequence} of stream {stream} was on its way, for which all others wait, and \
         the server does not give that message by its number; if this goes on, allow this user \
         $JS.API.STREAM.MSG.GET.{stream}, or remove the message from the stream"
    )
}

fn unsettled(stream: &str, sequence: u64) -> Trouble {
    Trouble::later(format!(
        "message {sequence} of stream {stream} has headers that the client library cannot read, and the server did not \
         confirm that it is in hand; if this goes on, remove the message from the stream"
    ))
}

/// Whether the client library reads these headers.
fn is_readable(block: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(block) else { return false };
    let mut lines = text.lines();
    let is_version = lines.next().is_none_or(|line| line.trim_end() == "NATS/1.0");
    let is_header = |line: &str| {
        let pair = line.split_once(':');
        pair.is_some_and(|(name, value)| {
            name.parse::<HeaderName>().is_ok() && value.trim().parse::<HeaderValue>().is_ok()
        })
    };
    is_version && lines.filter(|line| !line.is_empty()).all(is_header)
}

/// Names and values, as far as they are such, in the order of the names.
fn lines(block: &[u8]) -> Vec<(String, Vec<u8>)> {
    let lines = block.split(|byte| *byte == b'\n').skip(1).map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut pairs: Vec<(String, Vec<u8>)> = lines.filter(|line| !line.is_empty()).map(pair).collect();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    pairs
}

fn pair(line: &[u8]) -> (String, Vec<u8>) {
    let read = || {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name: HeaderName = std::str::from_utf8(&line[..colon]).ok()?.parse().ok()?;
        let name: &str = name.as_ref();
        Some((name.to_owned(), line[colon + 1..].trim_ascii().to_vec()))
    };
    read().unwrap_or_else(|| (UNREADABLE.to_owned(), line.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_library_cannot_read_is_known() {
        for block in ["", "NATS/1.0\r\n\r\n", "NATS/1.0\r\nx: y\r\nX-Y:\r\n\r\n", "NATS/1.0\r\nx: m\u{fc}ller\r\n\r\n"]
        {
            assert!(is_readable(block.as_bytes()), "{block:?}");
        }
        for block in [
            &b"NATS/1.0\r\nx: m\xfcller\r\n\r\n"[..],
            b"NATS/1.0\r\nx: a\rb\r\n\r\n",
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\nspaced name: x\r\n\r\n",
            b"HTTP/1.0\r\nx: y\r\n\r\n",
        ] {
            assert!(!is_readable(block), "{block:?}");
        }
    }

    #[test]
    fn nothing_of_what_cannot_be_read_is_lost() {
        let block = b"NATS/1.0\r\nx: m\xfcller \r\nb: \r\nno colon\r\nn\xe4me: x\r\n\r\n";
        let expected: [(&str, &[u8]); 4] =
            [("b", b""), (UNREADABLE, b"no colon"), (UNREADABLE, b"n\xe4me: x"), ("x", b"m\xfcller")];
        assert_eq!(lines(block), expected.map(|(name, value)| (name.to_owned(), value.to_vec())));
    }
}
