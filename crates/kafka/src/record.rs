//! Between a record and a [`Message`]: CloudEvents in the spelling of Kafka, the record's key as order key.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use oncebox_core::cloud_events::Spelling;
use oncebox_core::{Clock, Message, SystemClock, Timestamp};
use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, OwnedHeaders};

/// Says how many headers could not be read, because their names are no UTF-8.
const UNREADABLE: &str = "oncebox-unreadable-headers";

/// When it was stored, or made by its producer's clock, whichever the topic keeps.
pub(crate) fn stored_at(record: &BorrowedMessage<'_>) -> Option<Timestamp> {
    record.timestamp().to_millis().and_then(|millis| Timestamp::from_millisecond(millis).ok())
}

pub(crate) fn read(record: &BorrowedMessage<'_>) -> Message {
    let payload = record.payload().map(Bytes::copy_from_slice).unwrap_or_default();
    let (headers, unreadable) = headers(record);
    let made = stored_at(record).unwrap_or_else(|| SystemClock.now());
    let mut message = Spelling::KAFKA.read(headers, payload, record.topic(), made);
    if message.order_key.is_none() {
        message.order_key = record.key().filter(|key| !key.is_empty()).map(order_key);
    }
    if record.payload().is_none() {
        message = message.with_null_payload();
    }
    if unreadable > 0 {
        // Neither part can hold a control character.
        let _ = message.headers.add(UNREADABLE, unreadable.to_string());
    }
    message
}

/// How much of a payload goes into a witness: it is taken of every record, and time and length tell most apart already.
const WITNESS_BYTES: usize = 256;

/// What a record looks like (FNV-1a over time, key, length and the beginning of the payload): another record at the same
/// offset, in a topic that was made anew, looks otherwise.
pub(crate) fn witness(record: &BorrowedMessage<'_>) -> i64 {
    let millis = record.timestamp().to_millis().unwrap_or_default();
    hash(millis, record.key().unwrap_or_default(), record.payload().unwrap_or_default())
}

fn hash(millis: i64, key: &[u8], payload: &[u8]) -> i64 {
    let lengths = [key.len() as u64, payload.len() as u64].map(u64::to_le_bytes);
    let head = &payload[..payload.len().min(WITNESS_BYTES)];
    let bytes = millis.to_le_bytes().into_iter().chain(lengths.into_iter().flatten());
    let bytes = bytes.chain(key.iter().copied()).chain(head.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)).cast_signed()
}

fn headers<'r>(record: &'r BorrowedMessage<'_>) -> (Vec<(&'r str, &'r [u8])>, usize) {
    let Some(headers) = record.headers() else { return (Vec::new(), 0) };
    let mut readable = Vec::with_capacity(headers.count());
    let mut unreadable = 0;
    for index in 0..headers.count() {
        // The driver panics on a name that is no UTF-8, and anybody can send one: it must not take the consumer with it.
        match catch_unwind(AssertUnwindSafe(|| headers.try_get(index))) {
            Ok(Some(Header { key, value })) => readable.push((key, value.unwrap_or_default())),
            Ok(None) => {}
            Err(_) => unreadable += 1,
        }
    }
    (readable, unreadable)
}

/// A key that is no text still has to keep its order, so it gets a text of its own.
fn order_key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => text.to_owned(),
        Err(_) => key.iter().fold("hex:".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// The headers of a message in binary mode.
pub(crate) fn write_headers(message: &Message, source: Option<&str>) -> OwnedHeaders {
    let headers = Spelling::KAFKA.write(message, source);
    headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |owned, (name, value)| {
        owned.insert(Header { key: name, value: Some(value) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_text_stay_apart() {
        assert_eq!(order_key(b"account-1"), "account-1");
        assert_eq!(order_key(b"\xff\x00"), "hex:ff00");
        assert_ne!(order_key(b"\xff\x01"), order_key(b"\xff\x02"));
    }

    #[test]
    fn records_that_differ_have_other_witnesses() {
        let looks =
            [hash(1, b"k", b"p"), hash(2, b"k", b"p"), hash(1, b"kp", b""), hash(1, b"", b"kp"), hash(1, b"k", b"q")];
        let different: std::collections::HashSet<i64> = looks.into_iter().collect();
        assert_eq!(different.len(), looks.len());
        assert_eq!(hash(1, b"k", &[7; 300]), hash(1, b"k", &[7; 300]));
        assert_ne!(hash(1, b"k", &[7; 300]), hash(1, b"k", &[7; 301]));
    }
}
