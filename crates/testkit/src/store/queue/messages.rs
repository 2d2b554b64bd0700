//! A message comes out as it went in.

use oncebox_core::message::ATTRIBUTE_BYTES_MAX;
use oncebox_core::queue::{Enqueue, QueueStore, QueueTx};
use oncebox_core::{Ended, Message, MessageId, Timestamp, Transaction};

use super::steps::{add, lease, message, open, unordered};
use crate::hostile;
use crate::store::steps::begin;
use crate::store::{Setup, StoreFixture};

async fn round_trip<F: StoreFixture<Store: QueueStore>>(setup: &Setup<F>, sent: Vec<Message>) {
    let spec = unordered("payments");
    add(&setup.store, &spec, sent.clone()).await;
    let queue = open(&setup.store, &spec).await;
    let leased = lease(&setup.store, queue, sent.len() + 1).await;
    assert_eq!(leased.len(), sent.len());
    for (leased, sent) in leased.iter().zip(&sent) {
        hostile::assert_same(&leased.message, sent);
    }
}

/// Every part of a message comes back, and what was not set comes back not set.
pub async fn a_message_comes_back_as_it_was_sent<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let bare = Message::received("noted", Default::default(), Timestamp::UNIX_EPOCH);
    let mut full = message(r#"{ "amount": 1.50 }"#)
        .with_source("https://shop.example/orders")
        .with_order_key("account-1")
        .with_version(i64::MAX.unsigned_abs());
    full.headers.add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").expect("a sound header");
    full.time = Timestamp::from_microsecond(1_700_000_000_123_456).expect("a time that a timestamp can hold");
    let mut old = message("");
    old.time = Timestamp::from_microsecond(-1).expect("a time that a timestamp can hold");
    round_trip(&setup, vec![bare, full, old]).await;
}

/// Ids, types, sources, order keys and headers are kept as they are, whatever they look like.
pub async fn hostile_attributes_come_back_as_they_were_sent<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let longest = "x".repeat(ATTRIBUTE_BYTES_MAX);
    let sent = hostile::TEXTS.iter().copied().chain([longest.as_str()]).map(hostile::message).collect();
    round_trip(&setup, sent).await;
}

/// A payload of a mebibyte with every byte in it, and one of no bytes at all.
pub async fn a_large_payload_comes_back_byte_for_byte<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(1024 * 1024).collect();
    round_trip(&setup, vec![message("").with_payload(large), message("")]).await;
}

/// What not every database can hold (a NUL in a text, a version beyond 63 bits) comes back as it was or is refused
/// before the commit. It is never cut off or changed in silence.
pub async fn what_cannot_be_kept_is_refused_and_never_altered<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &unordered("payments")).await;
    let mut cases = vec![
        message("id").with_id(MessageId::new("a\0b").expect("an id that is not empty")),
        message("source").with_source("a\0b"),
        message("order key").with_order_key("a\0b"),
        message("version").with_version(u64::MAX),
        message("version").with_version(i64::MAX.unsigned_abs() + 1),
    ];
    let mut kind = message("type");
    kind.kind = "a\0b".to_owned();
    cases.push(kind);
    for sent in cases {
        let mut tx = begin(&setup.store).await;
        let row = Enqueue { message: sent.clone(), lane: None, once: None };
        match tx.enqueue(queue, &[row]).await {
            Ok(_) => {
                let ended = tx.commit().await;
                let leased = lease(&setup.store, queue, 10).await;
                match ended {
                    Ended::Committed(_) => hostile::assert_same(&leased[0].message, &sent),
                    _ => assert!(leased.is_empty(), "a refused message is in the queue"),
                }
            }
            Err(error) => {
                assert!(!error.is_retryable(), "trying again does not help: {error}");
                tx.rollback().await;
            }
        }
    }
}
