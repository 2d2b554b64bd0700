//! Between a record and a [`Message`]: CloudEvents in the spelling of Kafka, the record's key as order key.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use oncebox_core::cloud_events::Spelling;
use oncebox_core::{Clock, Message, SystemClock, Timestamp};
use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, OwnedHeaders};

/// Says how many headers could not be read, because their names are no UTF-8.
const UNREADABLE: &str = "oncebox-unreadable-headers";

pub(crate) fn read(record: &BorrowedMessage<'_>) -> Message {
    let payload = record.payload().map(Bytes::copy_from_slice).unwrap_or_default();
    let made = record.timestamp().to_millis().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let (headers, unreadable) = headers(record);
    let made = made.unwrap_or_else(|| SystemClock.now());
    let mut message = Spelling::KAFKA.read(headers, payload, record.topic(), made);
    if message.order_key.is_none() {
        message.order_key = record.key().filter(|key| !key.is_empty()).map(order_key);
    }
    if unreadable > 0 {
        // Neither part can hold a control character.
        let _ = message.headers.add(UNREADABLE, unreadable.to_string());
    }
    message
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
}
