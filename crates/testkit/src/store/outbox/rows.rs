//! What comes out is what went in.

use oncebox_core::queue::QueueStore;
use oncebox_core::{Message, Outgoing};

use super::steps::{emit, fetch, hold, outgoing, refuse};
use crate::hostile;
use crate::store::{Setup, StoreFixture};

/// Every part of a message comes back.
pub async fn a_message_to_publish_comes_as_it_was_emitted<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let mut full = Message::new("payment.received").with_source("till").with_order_key("a").with_version(u64::MAX);
    full.headers.add("traceparent", "00-abc").expect("a sound header");
    let full = Outgoing { topic: "orders".to_owned(), message: full.with_payload(vec![0, 255, 10]).into() };
    emit(store, &[outgoing("bare", "1"), full.clone()]).await;
    let rows = fetch(store, &lanes, 10).await;
    assert_eq!(rows[1].outgoing.topic, "orders");
    hostile::assert_same(&rows[1].outgoing.message, &full.message);
    hostile::assert_same(&rows[0].outgoing.message, &outgoing("bare", "1").message);
}

/// Texts that databases are known to change, as topic and in every part of a message, also once it was set aside.
pub async fn hostile_topics_and_messages_come_as_they_were_emitted<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let row = |text: &&str| Outgoing { topic: (*text).to_owned(), message: hostile::message(text).into() };
    let rows: Vec<Outgoing> = hostile::TEXTS.iter().map(row).collect();
    emit(store, &rows).await;
    let fetched = fetch(store, &lanes, 100).await;
    assert_eq!(fetched.len(), rows.len());
    for (got, sent) in fetched.iter().zip(&rows) {
        assert_eq!(got.outgoing.topic, sent.topic);
        hostile::assert_same(&got.outgoing.message, &sent.message);
    }
    let text = hostile::TEXTS[3];
    refuse(store, &lanes, text).await;
    let aside = super::steps::aside(store).await;
    assert_eq!(aside[0].topic, text);
    hostile::assert_same(&aside[0].message, &rows[3].message);
}

/// No part is cut.
pub async fn a_large_payload_comes_as_it_was_emitted<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let payload: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let id = "i".repeat(4096);
    let message = Message::clone(&outgoing("x", &id).message).with_order_key("k".repeat(4096)).with_payload(payload);
    let row = Outgoing { topic: "t".repeat(4096), message: message.into() };
    emit(store, std::slice::from_ref(&row)).await;
    let fetched = fetch(store, &lanes, 10).await;
    assert_eq!(fetched[0].outgoing.topic, row.topic);
    hostile::assert_same(&fetched[0].outgoing.message, &row.message);
}
