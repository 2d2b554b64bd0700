//! A message as columns, and back, byte for byte.

use std::time::Duration;

use oncebox_core::error::StoreError;
use oncebox_core::message::{Headers, Message, MessageId};
use oncebox_core::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::connection::{Call, Row, corrupt};

/// How much of an error's text is kept with a row, in characters.
const ERROR_CHARS_MAX: usize = 1000;

/// What has to be computed of a message before it can be bound.
pub(crate) struct Packed<'m> {
    message: &'m Message,
    headers: Option<Vec<u8>>,
    made_at: i64,
    made_at_nanos: i16,
}

impl<'m> Packed<'m> {
    pub(crate) fn new(message: &'m Message) -> Result<Self, StoreError> {
        let pairs: Vec<(&str, &str)> = message.headers.iter().collect();
        let headers = if pairs.is_empty() { None } else { serde_json::to_vec(&pairs).ok() };
        let nanos = message.time.as_nanosecond();
        let made_at =
            i64::try_from(nanos.div_euclid(1000)).map_err(|_| corrupt("a time that no timestamp can hold"))?;
        // 0 to 999, so it fits.
        let made_at_nanos = nanos.rem_euclid(1000) as i16;
        Ok(Self { message, headers, made_at, made_at_nanos })
    }
}

/// Stands in for an order key, or a topic, in an index; the key itself is compared too. Never changes: stored rows carry it.
pub(crate) fn order_hash(order_key: &str) -> i64 {
    first_eight(Sha256::new().chain_update(order_key))
}

fn first_eight(hash: Sha256) -> i64 {
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// Stands in for a topic and an order key in an index; both are compared too. Never changes: stored rows carry it.
pub(crate) fn place_hash(topic: &str, order_key: &str) -> i64 {
    // The length keeps them apart: (`a`, `bc`) is not (`ab`, `c`).
    let length = (topic.len() as u64).to_be_bytes();
    first_eight(Sha256::new().chain_update(length).chain_update(topic).chain_update(order_key))
}

/// Binds messages as columns, the last ones of `queue/enqueue.sql` and `parked/park.sql`.
pub(crate) fn bind<'v>(call: Call<'v>, rows: &'v [Packed<'_>]) -> Call<'v> {
    call.column(rows.iter().map(|row| row.message.order_key.as_deref().map(str::as_bytes)))
        .column(rows.iter().map(|row| row.message.id.as_ref().map(|id| id.as_str().as_bytes())))
        .column(rows.iter().map(|row| row.message.source.as_deref().map(str::as_bytes)))
        .column(rows.iter().map(|row| Some(row.message.kind.as_bytes())))
        // The same 64 bits; the column is never compared.
        .column(rows.iter().map(|row| row.message.version.map(u64::cast_signed)))
        .column(rows.iter().map(|row| row.headers.as_deref()))
        .column(rows.iter().map(|row| Some(&row.message.payload[..])))
        .column(rows.iter().map(|row| Some(row.made_at)))
        .column(rows.iter().map(|row| Some(row.made_at_nanos)))
}

/// Reads a message from the last columns that `queue/lease.sql` and `parked/take.sql` return: those that [`bind`]
/// binds, in the same order.
pub(crate) fn read(row: &mut Row) -> Result<Message, StoreError> {
    let order_key = text_or_null(row)?;
    let id = text_or_null(row)?;
    let source = text_or_null(row)?;
    let kind = text_or_null(row)?.ok_or_else(|| corrupt("a message without a type"))?;
    let version: Option<i64> = row.int_or_null()?;
    let headers = headers(row)?;
    let payload = row.bytes()?;
    let (made_at, nanos): (i64, i64) = (row.int()?, row.int()?);
    let time = Timestamp::from_nanosecond(i128::from(made_at) * 1000 + i128::from(nanos))
        .map_err(|_| corrupt("a time that no timestamp can hold"))?;
    let mut message = Message::received(kind, payload, time);
    message.id = id.map(MessageId::new).transpose().map_err(|_| corrupt("a message with an empty id"))?;
    message.source = source;
    message.order_key = order_key;
    message.version = version.map(i64::cast_unsigned);
    message.headers = headers;
    Ok(message)
}

pub(crate) fn text_or_null(row: &mut Row) -> Result<Option<String>, StoreError> {
    let Some(bytes) = row.bytes_or_null()? else { return Ok(None) };
    String::from_utf8(bytes.into()).map(Some).map_err(|_| corrupt("bytes that are not UTF-8"))
}

fn headers(row: &mut Row) -> Result<Headers, StoreError> {
    let mut headers = Headers::default();
    let Some(bytes) = row.bytes_or_null()? else { return Ok(headers) };
    let pairs: Vec<(String, String)> =
        serde_json::from_slice(&bytes).map_err(|_| corrupt("headers in another form"))?;
    for (name, value) in pairs {
        headers.add(name, value).map_err(|_| corrupt("a header that is none"))?;
    }
    Ok(headers)
}

/// A reason as it is kept with a row: bounded, and without the one character that PostgreSQL's text can't hold.
pub(crate) fn error_text(reason: &str) -> String {
    reason.chars().filter(|c| *c != '\0').take(ERROR_CHARS_MAX).collect()
}

pub(crate) fn micros(duration: Duration) -> i64 {
    // A quarter of the range is as good as forever, and adding it to a time does not overflow.
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_hash_never_changes() {
        assert_eq!(order_hash("account-1"), i64::from_be_bytes(Sha256::digest("account-1")[..8].try_into().unwrap()));
        assert_eq!(order_hash(""), i64::from_be_bytes([0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14]));
    }

    #[test]
    fn the_hash_of_a_topic_and_an_order_key_never_changes() {
        assert_eq!(place_hash("orders", "account-1"), -924_349_073_098_141_853);
        assert_ne!(place_hash("a", "bc"), place_hash("ab", "c"));
    }

    #[test]
    fn an_error_text_is_bounded_and_has_no_zero_byte() {
        assert_eq!(error_text("a\0b"), "ab");
        assert_eq!(error_text(&"ä".repeat(5000)).chars().count(), 1000);
    }
}
