//! The journal of deliveries: found by key and by id, bounded, and gone by age.

use std::time::Duration;

use oncebox_core::journal::{DeliveryEnd, JournalEntry, JournalOf, Journaled, Journals, TEXT_BYTES_MAX, Told, id_hash};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{Clock, ConsumerId, Key, Timestamp, Transaction};

use super::steps::far_future;
use crate::store::steps::{begin, commit, consumer, key};
use crate::store::{Setup, StoreFixture};

const PROCESS: &str = "host/17";

fn entry(consumer: ConsumerId, id: &str, end: DeliveryEnd) -> JournalEntry {
    let told = Told { end, cause: None, attempt: None, was_parked: false, handler_millis: None, coordinate: None };
    JournalEntry { consumer, ago: Duration::ZERO, key: key(id), id_hash: None, told }
}

async fn write<S: QuarantineStore>(store: &S, entries: &[JournalEntry]) {
    let mut tx = begin(store).await;
    tx.add_to_journal(PROCESS, entries).await.expect("the journal can be written");
    commit(tx).await;
}

async fn read<S: QuarantineStore>(store: &S, sought: JournalOf<'_>, max: usize) -> Vec<Journaled> {
    let mut tx = begin(store).await;
    let found = tx.read_journal(sought, max).await.expect("the journal can be read");
    tx.rollback().await;
    found
}

/// Where a key is not the id, both lead to the entry, and to it alone; a look may ask for one consumer.
pub async fn a_delivery_is_found_by_key_and_by_id<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let mut first = entry(ours, "payment:17", DeliveryEnd::Parked);
    first.id_hash = Some(id_hash("m-1"));
    first.told = Told {
        end: DeliveryEnd::Parked,
        cause: Some("transient/paid/bank-closed".to_owned()),
        attempt: Some(3),
        was_parked: true,
        handler_millis: Some(12),
        coordinate: Some("payments/0/42".to_owned()),
    };
    let second = entry(other, "m-1", DeliveryEnd::Applied);
    write(store, &[first.clone(), second.clone(), entry(ours, "payment:18", DeliveryEnd::Duplicate)]).await;

    let keys = [key("payment:17")];
    let by_key = read(store, JournalOf { keys: &keys, ..JournalOf::default() }, 10).await;
    assert_eq!(by_key.len(), 1, "{by_key:?}");
    let Journaled { consumer, key: found, process, told, .. } = &by_key[0];
    assert_eq!((*consumer, found, process.as_str(), told), (ours, &keys[0], PROCESS, &first.told));

    let keys = [key("m-1"), key("payment:17")];
    let both = read(store, JournalOf { keys: &keys, id: Some("m-1"), consumer: None }, 10).await;
    let mut whose: Vec<i16> = both.iter().map(|entry| entry.consumer.0).collect();
    whose.sort_unstable();
    assert_eq!(whose, [ours.0, other.0], "each once, although one is found in two ways: {both:?}");
    let by_id = read(store, JournalOf { keys: &[], id: Some("m-1"), consumer: None }, 10).await;
    assert_eq!(by_id, by_key);
    let one = read(store, JournalOf { keys: &keys, id: Some("m-1"), consumer: Some(other) }, 10).await;
    assert_eq!((one.len(), &one[0].told), (1, &second.told));
    assert_eq!(read(store, JournalOf { keys: &[key("m-2")], id: Some("m-2"), consumer: None }, 10).await, []);
    assert_eq!(read(store, JournalOf::default(), 10).await, []);
}

/// An entry has the time at which its delivery ended, not at which it was written; of many, the newest are shown.
pub async fn the_newest_entries_come_first_and_are_bounded<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let mut older = entry(ours, "1", DeliveryEnd::Released);
    older.ago = Duration::from_millis(700);
    write(store, &[entry(ours, "1", DeliveryEnd::Applied), older]).await;
    setup.advance(Duration::from_secs(5)).await;
    write(store, &[entry(ours, "1", DeliveryEnd::Duplicate), entry(ours, "1", DeliveryEnd::Stale)]).await;
    let keys = [key("1")];
    let sought = JournalOf { keys: &keys, ..JournalOf::default() };
    let all = read(store, sought, 10).await;
    let ends: Vec<DeliveryEnd> = all.iter().map(|entry| entry.told.end).collect();
    let expected = [DeliveryEnd::Stale, DeliveryEnd::Duplicate, DeliveryEnd::Applied, DeliveryEnd::Released];
    assert_eq!(ends, expected, "of one time, the last that was written comes first");
    let before = all[2].at.duration_since(all[3].at);
    assert_eq!(Duration::try_from(before).expect("in order"), Duration::from_millis(700));
    assert_eq!(read(store, sought, 2).await, all[..2]);
}

/// Texts of brokers are kept as they are, up to a bound; a long key too.
pub async fn an_entry_bears_whatever_brokers_send<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let mut odd = entry(ours, "x", DeliveryEnd::Dead);
    odd.key = Key::id(&"k".repeat(5000)).expect("a long key is hashed");
    odd.told.coordinate = Some("a\0b'\"\u{1F980}\\".to_owned());
    odd.told.cause = Some("c".repeat(5000));
    odd.told.attempt = Some(u32::MAX);
    write(store, std::slice::from_ref(&odd)).await;
    let keys = [odd.key.clone()];
    let found = read(store, JournalOf { keys: &keys, ..JournalOf::default() }, 10).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].told.coordinate, odd.told.coordinate);
    assert!(found[0].told.cause.as_ref().is_some_and(|cause| cause.len() >= TEXT_BYTES_MAX));
    assert!(found[0].told.attempt >= Some(i32::MAX.cast_unsigned()));
}

/// What was not committed is not in the journal.
pub async fn entries_that_rolled_back_never_were<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    write(store, &[entry(ours, "1", DeliveryEnd::Applied)]).await;
    let mut tx = begin(store).await;
    tx.add_to_journal(PROCESS, &[entry(ours, "1", DeliveryEnd::Dead)]).await.expect("the journal can be written");
    tx.rollback().await;
    let mut tx = begin(store).await;
    assert_eq!(tx.sweep_journal(ours, far_future(), 10).await.expect("the journal can be swept"), 1);
    tx.rollback().await;
    let keys = [key("1")];
    let found = read(store, JournalOf { keys: &keys, ..JournalOf::default() }, 10).await;
    assert_eq!(found.iter().map(|entry| entry.told.end).collect::<Vec<_>>(), [DeliveryEnd::Applied]);
}

/// Entries from before a time go, the oldest first, a bounded number at a time, and those of one consumer only.
pub async fn old_entries_go_in_steps<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let old: Vec<JournalEntry> = (1..=5)
        .map(|n| JournalEntry { ago: Duration::from_secs(n), ..entry(ours, &n.to_string(), DeliveryEnd::Applied) })
        .collect();
    write(store, &old).await;
    write(store, &[entry(other, "1", DeliveryEnd::Applied)]).await;
    setup.advance(Duration::from_secs(60)).await;
    write(store, &[entry(ours, "6", DeliveryEnd::Applied)]).await;
    let before = setup.clock.now() - Duration::from_secs(30);
    let sweep = async |before: Timestamp, max| {
        let mut tx = begin(store).await;
        let swept = tx.sweep_journal(ours, before, max).await.expect("the journal can be swept");
        commit(tx).await;
        swept
    };
    let left = async || {
        let keys: Vec<Key> = (1..=6).map(|n| key(&n.to_string())).collect();
        let found = read(store, JournalOf { keys: &keys, id: None, consumer: Some(ours) }, 10).await;
        found.into_iter().map(|entry| entry.key).collect::<Vec<Key>>()
    };
    assert_eq!(sweep(Timestamp::UNIX_EPOCH, 10).await, 0);
    assert_eq!(sweep(before, 2).await, 2);
    assert_eq!(left().await, ["6", "1", "2", "3"].map(key), "the oldest went first");
    assert_eq!((sweep(before, 10).await, sweep(before, 10).await), (3, 0));
    assert_eq!(left().await, [key("6")], "it is young");
    let keys = [key("1")];
    assert_eq!(read(store, JournalOf { keys: &keys, id: None, consumer: Some(other) }, 10).await.len(), 1);
}
