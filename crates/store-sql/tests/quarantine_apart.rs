//! What an operator sees and does is about the rows of one consumer, and of one order key.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, claim, commit, consumer, fingerprint, request};
use oncebox_core::parked::{Cause, Park, ParkLease, Parking, PutBack, Verdict, Waits};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore, Remembered, Superseded};
use oncebox_core::{
    ClaimRequest, Class, Clock, ConsumerId, Fingerprint, Inbox, Key, Message, MessageId, Outcome, OutcomeKind,
    Transaction,
};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture, run};

const NOW: Waits = Waits::Retry(Duration::ZERO);

macro_rules! on_both_stores {
    ($($case:ident,)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $case() {
                    super::run(stringify!($case), super::SqliteFixture::default(), super::$case).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    super::run(stringify!($case), super::PostgresFixture::default(), super::$case).await;
                }
            )+
        }
    };
}

on_both_stores! {
    causes_are_counted_for_their_consumer,
    a_row_is_held_up_by_a_dead_one_of_its_own_key,
    a_discard_leaves_the_record_of_another_consumer,
    what_is_remembered_is_of_the_consumer_or_shared,
    an_edit_gives_a_row_all_of_the_other_message,
    an_edit_under_the_same_key_changes_its_record_alone,
    an_edit_meets_only_the_same_content_of_its_consumer,
    a_new_verdict_is_told_with_its_time,
    a_note_stands_at_the_rows_that_were_named,
}

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn park(consumer: ConsumerId, order_key: Option<&str>, text: &str, code: &str, waits: Waits) -> Park {
    let class = Some(Class::Permanent);
    let message = Message::made_by(&ManualClock::new(), "noted").with_id(MessageId::new(text).unwrap());
    Park {
        consumer,
        message: Arc::new(message.with_payload(text.to_owned())),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: order_key.map(str::to_owned),
        verdict: Verdict {
            waits,
            class,
            cause: Cause::new(class, "noted", code),
            reason: "closed".to_owned(),
            attempts: 1,
        },
    }
}

/// Parks as an engine does, each with its record, and answers with the rows of the consumer of the last.
async fn add<S: QuarantineStore>(store: &S, parks: &[Park]) -> Vec<ParkedRow> {
    let mut tx = begin(store).await;
    for park in parks {
        let Park { consumer, key, fingerprint, .. } = park.clone();
        claim(&mut tx, &ClaimRequest { consumer, key, fingerprint, id_hash: None }).await;
        tx.record(&[(park.consumer, park.key.clone(), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    }
    assert!(tx.park(parks).await.unwrap().iter().all(|added| *added));
    let rows = tx.page(parks[parks.len() - 1].consumer, 0, 100).await.unwrap();
    commit(tx).await;
    rows
}

/// The most frequent first, and among equals by name.
async fn causes_are_counted_for_their_consumer<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let theirs: Vec<Park> = (0..4).map(|n| park(other, None, &n.to_string(), "z", Waits::Person)).collect();
    add(store, &theirs).await;
    let parks = [
        park(ours, None, "1", "b", Waits::Person),
        park(ours, None, "2", "a", NOW),
        park(ours, None, "3", "c", Waits::Person),
        park(ours, None, "4", "c", NOW),
    ];
    add(store, &parks).await;
    let mut tx = begin(store).await;
    let causes = tx.causes(ours).await.unwrap();
    tx.rollback().await;
    let told: Vec<_> = causes.iter().map(|cause| (cause.cause.clone(), cause.messages, cause.dead)).collect();
    let cause = |code| Cause::new(Some(Class::Permanent), "noted", code);
    assert_eq!(told, [(cause("c"), 2, 1), (cause("a"), 1, 0), (cause("b"), 1, 1)]);
}

/// Looked at alone; and on a page, by one that stands before the page.
async fn a_row_is_held_up_by_a_dead_one_of_its_own_key<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    add(store, &[park(other, Some("theirs"), "x", "a", Waits::Person)]).await;
    let parks = [
        park(ours, Some("k"), "gap", "a", Waits::Gap(Duration::from_secs(60))),
        park(ours, Some("waits"), "waits", "a", NOW),
        park(ours, Some("k"), "dead", "a", Waits::Person),
        park(ours, Some("theirs"), "free 1", "a", NOW),
        park(ours, Some("waits"), "free 2", "a", NOW),
        park(ours, None, "free 3", "a", NOW),
        park(ours, Some("k"), "held up", "a", NOW),
        park(ours, Some("k"), "a gap is outside", "a", Waits::Gap(Duration::from_secs(60))),
    ];
    let rows = add(store, &parks).await;
    let ids = |row: &ParkedRow| String::from_utf8_lossy(&row.message.payload).into_owned();
    let mut tx = begin(store).await;
    let mut alone = Vec::new();
    for row in &rows {
        let row = tx.parked(row.row).await.unwrap().unwrap();
        alone.extend(row.is_held_up.then(|| ids(&row)));
    }
    assert_eq!(alone, ["held up"]);
    let before_the_page: [(i64, &[&str]); 4] =
        [(0, &[]), (rows[1].row, &[]), (rows[2].row, &["held up"]), (rows[4].row, &["held up"])];
    for (after, expected) in before_the_page {
        let page = tx.page(ours, after, 100).await.unwrap();
        let held_up: Vec<_> = page.iter().filter(|row| row.is_held_up).map(ids).collect();
        assert_eq!(held_up, expected, "after {after}");
    }
    tx.rollback().await;
}

/// One key at two consumers has two records.
async fn a_discard_leaves_the_record_of_another_consumer<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let theirs = add(store, &[park(other, None, "a", "a", Waits::Person)]).await;
    let rows =
        add(store, &[park(ours, None, "a", "a", Waits::Person), park(ours, None, "b", "a", Waits::Person)]).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.discard(&[rows[0].row], "a test").await.unwrap(), [true]);
    commit(tx).await;
    let mut tx = begin(store).await;
    let remembered = tx.remembered(ours, &[key("a"), key("b")]).await.unwrap();
    let outcomes: Vec<_> = remembered.iter().map(|known| known.map(|known| known.outcome)).collect();
    assert_eq!(outcomes, [Some(OutcomeKind::Rejected), Some(OutcomeKind::Parked)]);
    assert_eq!(tx.remembered(other, &[key("a")]).await.unwrap()[0].unwrap().outcome, OutcomeKind::Parked);
    assert_eq!(tx.revive(&[theirs[0].row], None).await.unwrap(), [true]);
    tx.rollback().await;
}

/// And of no other consumer.
async fn what_is_remembered_is_of_the_consumer_or_shared<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    use oncebox_core::{ConsumerName, Store};
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let shared = store.consumer(&ConsumerName::global()).await.unwrap();
    let mut tx = begin(store).await;
    for (whose, text) in [(ours, "ours"), (other, "theirs"), (shared, "shared")] {
        claim(&mut tx, &request(whose, text)).await;
    }
    let asked = [key("ours"), key("theirs"), key("shared"), key("unknown")];
    let found = tx.remembered(ours, &asked).await.unwrap();
    let shared_of = |at: usize| found[at].map(|found| found.is_shared);
    assert_eq!([shared_of(0), shared_of(1), shared_of(2), shared_of(3)], [Some(false), None, Some(true), None]);
    assert_eq!(tx.remembered(shared, &asked[2..3]).await.unwrap().len(), 1);
    tx.rollback().await;
}

/// Every part of it, and what was said of the row before stays.
async fn an_edit_gives_a_row_all_of_the_other_message<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let mut parks =
        [park(ours, Some("k"), "before", "a", Waits::Person), park(ours, None, "beside", "a", Waits::Person)];
    parks[0].owns_record = false;
    let rows = add(store, &parks).await;
    setup.advance(Duration::from_secs(1)).await;
    let mut message = Message::made_by(&*setup.clock, "another type")
        .with_id(MessageId::new("another id").unwrap())
        .with_source("another source")
        .with_order_key("k")
        .with_version(7)
        .with_payload("another payload");
    message.headers.add("name", "value").unwrap();
    message.time += Duration::from_nanos(7);
    let with = Park {
        message: Arc::new(message.clone()),
        fingerprint: fingerprint(9),
        ..park(ours, Some("k"), "after", "a", NOW)
    };
    let mut tx = begin(store).await;
    assert_eq!(tx.supersede(rows[0].row, &with, 42, "edited").await.unwrap(), Superseded::Done);
    commit(tx).await;
    let mut tx = begin(store).await;
    let after = tx.parked(rows[0].row).await.unwrap().unwrap();
    assert_eq!(after.message, message);
    assert_eq!((&after.key, after.fingerprint, after.owns_record), (&with.key, with.fingerprint, true));
    assert_eq!((after.supersedes, after.replay, after.first_at), (Some(42), None, rows[0].first_at));
    assert_eq!(tx.parked(rows[1].row).await.unwrap().unwrap(), rows[1], "the row beside it is as it was");
    tx.rollback().await;
}

/// The record of the key has the content that will run, so that a redelivery of the old one is a conflict.
async fn an_edit_under_the_same_key_changes_its_record_alone<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    add(store, &[park(other, None, "a", "a", Waits::Person)]).await;
    let rows = add(store, &["a", "b"].map(|text| park(ours, None, text, "a", Waits::Person))).await;
    let edited = Fingerprint::from_stored(2, 9);
    let with = Park { fingerprint: edited, ..park(ours, None, "a", "a", NOW) };
    let mut tx = begin(store).await;
    assert_eq!(tx.supersede(rows[0].row, &with, 1, "edited").await.unwrap(), Superseded::Done);
    assert_eq!(tx.parked(rows[0].row).await.unwrap().unwrap().fingerprint, edited);
    let fingerprints = |known: Vec<Option<Remembered>>| -> Vec<Fingerprint> {
        known.into_iter().flatten().map(|known| known.fingerprint).collect()
    };
    let of_ours = fingerprints(tx.remembered(ours, &[key("a"), key("b")]).await.unwrap());
    assert_eq!(of_ours, [edited, fingerprint(7)]);
    assert_eq!(fingerprints(tx.remembered(other, &[key("a")]).await.unwrap()), [fingerprint(7)]);
    tx.rollback().await;
}

/// What is parked under the new key already refuses the edit, if it is the consumer's and the same content.
async fn an_edit_meets_only_the_same_content_of_its_consumer<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    add(store, &[park(other, None, "new", "a", Waits::Person)]).await;
    let mut parks = [park(ours, None, "old", "a", Waits::Person), park(ours, None, "taken", "a", Waits::Person)];
    parks[1].owns_record = false;
    let rows = add(store, &parks).await;
    let edit = async |with: &Park| {
        let mut tx = begin(store).await;
        let answer = tx.supersede(rows[0].row, with, 1, "edited").await.unwrap();
        tx.rollback().await;
        answer
    };
    assert_eq!(edit(&park(ours, None, "new", "a", NOW)).await, Superseded::Done, "another consumer's is no obstacle");
    assert_ne!(edit(&park(ours, None, "taken", "a", NOW)).await, Superseded::Done);
    // One that has no record: nothing but the row itself is in the way, and only of the same content.
    let unrecorded = Park { owns_record: false, ..park(ours, None, "unrecorded", "a", Waits::Person) };
    let mut tx = begin(store).await;
    assert_eq!(tx.park(std::slice::from_ref(&unrecorded)).await.unwrap(), [true]);
    commit(tx).await;
    let content = unrecorded.fingerprint;
    assert_eq!(edit(&unrecorded).await, Superseded::Taken);
    for other in [fingerprint(8), Fingerprint::from_stored(content.scheme() + 1, content.hash())] {
        assert_eq!(edit(&Park { fingerprint: other, ..unrecorded.clone() }).await, Superseded::Done);
    }
}

/// When a row was put back, and why, is what operators see.
async fn a_new_verdict_is_told_with_its_time<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let rows = add(store, &[park(ours, None, "1", "a", NOW)]).await;
    setup.advance(Duration::from_secs(5)).await;
    let mut tx = begin(store).await;
    let lease = ParkLease { consumer: ours, max: 10, lease: Duration::from_secs(30) };
    let leased = tx.lease_parked(&lease).await.unwrap();
    let class = Some(Class::Transient);
    let cause = Cause::new(class, "noted", "another");
    let verdict = Verdict { waits: Waits::Person, class, cause: cause.clone(), reason: "why".to_owned(), attempts: 9 };
    tx.put_back(&[PutBack::new(leased[0].receipt, verdict)]).await.unwrap();
    commit(tx).await;
    let mut tx = begin(store).await;
    let row = tx.parked(rows[0].row).await.unwrap().unwrap();
    tx.rollback().await;
    assert_eq!((row.first_at, row.last_at), (rows[0].first_at, setup.clock.now()));
    assert_eq!((row.class, &row.cause, row.reason.as_str(), row.attempts), (class, &cause, "why", 9));
    assert!(row.is_dead() && row.due_at.is_none());
}

/// And at no other.
async fn a_note_stands_at_the_rows_that_were_named<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let rows = add(store, &["1", "2", "3"].map(|text| park(ours, None, text, "a", Waits::Person))).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.annotate(&[rows[1].row], Some("look at this")).await.unwrap(), [true]);
    let notes: Vec<_> = tx.page(ours, 0, 10).await.unwrap().into_iter().map(|row| row.note).collect();
    assert_eq!(notes, [None, Some("look at this".to_owned()), None]);
    assert_eq!(tx.page(ours, 0, 2).await.unwrap().len(), 2, "as many as were asked for");
    tx.rollback().await;
}
