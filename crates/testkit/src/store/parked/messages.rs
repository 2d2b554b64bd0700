//! A parked message comes back as it came.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::message::ATTRIBUTE_BYTES_MAX;
use oncebox_core::parked::{Cause, Park, ParkStore, Verdict};
use oncebox_core::{Class, Message, MessageId, Timestamp};

use super::steps::{LEASE_AND_MORE, NOW, add, end, lease, message, parked, put_back, receipts};
use crate::hostile;
use crate::store::steps::{consumer, fingerprint};
use crate::store::{Setup, StoreFixture};

async fn round_trip<F: StoreFixture<Store: ParkStore>>(setup: &Setup<F>, came: Vec<Message>) {
    let billing = consumer(&setup.store, "billing").await;
    for (n, came) in came.into_iter().enumerate() {
        let park = Park { message: Arc::new(came.clone()), ..parked(billing, &n.to_string()) };
        add(&setup.store, &[park]).await;
        let leased = lease(&setup.store, billing).await;
        assert_eq!(leased.len(), 1);
        hostile::assert_same(&leased[0].message, &came);
        end(&setup.store, &receipts(&leased)).await.expect("a leased row can be ended");
    }
}

/// Every part of a message comes back, and what was not set comes back not set.
pub async fn a_parked_message_comes_back_as_it_came<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let bare = Message::received("noted", Default::default(), Timestamp::UNIX_EPOCH);
    let mut full = message(r#"{ "amount": 1.50 }"#)
        .with_id(MessageId::new("7f3a").expect("an id that is not empty"))
        .with_source("https://shop.example/orders")
        .with_order_key("account-1")
        .with_version(u64::MAX);
    full.headers.add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").expect("a sound header");
    full.time = Timestamp::from_nanosecond(1_700_000_000_123_456_789).expect("a time that a timestamp can hold");
    let mut old = message("");
    old.time = Timestamp::from_microsecond(-1).expect("a time that a timestamp can hold");
    round_trip(&setup, vec![bare, full, old]).await;
}

/// Ids, types, sources, order keys and headers are kept as they are, whatever they look like: a message that nobody
/// could handle is just the one that is parked.
pub async fn a_parked_hostile_message_comes_back_as_it_came<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let longest = "x".repeat(ATTRIBUTE_BYTES_MAX);
    let mut came: Vec<Message> =
        hostile::TEXTS.iter().copied().chain([longest.as_str()]).map(hostile::message).collect();
    let mut zero_bytes = message("a\0b").with_source("a\0b").with_order_key("a\0b");
    zero_bytes.kind = "a\0b".to_owned();
    came.push(zero_bytes);
    round_trip(&setup, came).await;
}

/// A payload of a mebibyte with every byte in it.
pub async fn a_large_parked_message_comes_back_byte_for_byte<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(1024 * 1024).collect();
    round_trip(&setup, vec![message("").with_payload(large)]).await;
}

/// Reasons and causes are for people. Whatever they hold, the message is set aside and put back all the same.
pub async fn words_that_a_text_cannot_hold_do_not_stop_the_parking<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let billing = consumer(&setup.store, "billing").await;
    let long = "\u{10ffff}".repeat(5000);
    let words = hostile::TEXTS.iter().copied().chain(["", "a\0b", long.as_str()]);
    for (n, words) in words.enumerate() {
        let class = Some(Class::Permanent);
        let cause = Cause::new(class, words, words);
        let verdict = Verdict { waits: NOW, class, cause, reason: words.to_owned(), attempts: 1 };
        add(&setup.store, &[Park { verdict: verdict.clone(), ..parked(billing, &n.to_string()) }]).await;
        let leased = lease(&setup.store, billing).await;
        put_back(&setup.store, leased[0].receipt, verdict).await.expect("a leased row can be put back");
        let again = lease(&setup.store, billing).await;
        end(&setup.store, &receipts(&again)).await.expect("a leased row can be ended");
    }
}

/// Whether it owns its record, how often it failed and when it was parked first come back with a row, also when it was
/// tried since. A failure of no class can be kept.
pub async fn what_is_known_of_a_row_comes_back<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let mut owner = parked(billing, "a");
    owner.verdict.attempts = 3;
    owner.verdict.class = None;
    let conflict = Park { owns_record: false, fingerprint: fingerprint(8), ..parked(billing, "a") };
    add(store, &[owner, conflict]).await;
    let first = lease(store, billing).await;
    let known = |leased: &[oncebox_core::parked::LeasedPark]| -> Vec<(bool, u32)> {
        leased.iter().map(|leased| (leased.owns_record, leased.attempts)).collect()
    };
    assert_eq!(known(&first), [(true, 3), (false, 1)]);
    setup.advance(LEASE_AND_MORE).await;
    let second = lease(store, billing).await;
    assert_eq!(known(&second), [(true, 3), (false, 1)], "a lease that ran out counts as no attempt");
    for (first, second) in first.iter().zip(&second) {
        let apart = first.parked_at.duration_since(second.parked_at).unsigned_abs();
        assert!(apart < Duration::from_millis(1), "the time of parking moved by {apart:?}");
    }
}
