//! Records that consumers share: which of them an ended or a discarded row may change, and which belong to another row.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, claim, commit, consumer, fingerprint};
use oncebox_core::horizon::{Consumers, HorizonStore, OldRecords};
use oncebox_core::identity::{Binding, Scheme};
use oncebox_core::parked::{Cause, Park, ParkLease, Parking, Verdict, Waits};
use oncebox_core::quarantine::{Quarantine, QuarantineStore};
use oncebox_core::{
    Claim, ClaimRequest, Class, ConsumerId, ConsumerName, Fingerprint, Inbox, Key, Message, Outcome, OutcomeKind,
    Store, Timestamp, Transaction,
};
use oncebox_testkit::store::{Setup, StoreFixture, run};
use oncebox_testkit::{ManualClock, eventually};

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
    a_row_that_ends_leaves_the_record_of_a_third_consumer,
    a_row_of_a_consumer_that_shares_its_keys_settles_the_shared_record,
    only_a_row_of_the_same_message_keeps_a_shared_record_parked,
    only_a_row_of_a_consumer_that_shares_its_keys_keeps_a_shared_record_parked,
    a_shared_record_that_names_a_consumer_is_settled_by_its_row_alone,
    a_shared_record_that_names_a_consumer_is_rejected_by_its_discard_alone,
    a_discard_leaves_the_record_of_a_row_with_just_its_content,
    a_settled_record_is_as_old_as_the_end_of_its_row,
    a_discard_asks_the_binding_of_its_own_consumer,
    a_discard_heeds_rows_of_the_same_content_alone,
    a_discard_heeds_rows_of_consumers_that_share_their_keys_alone,
    a_discard_of_a_consumer_with_keys_of_its_own_leaves_shared_records,
}

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn park(consumer: ConsumerId, text: &str, waits: Waits) -> Park {
    let class = Some(Class::Permanent);
    Park {
        consumer,
        message: Arc::new(Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned())),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: None,
        verdict: Verdict {
            waits,
            class,
            cause: Cause::new(class, "noted", "closed"),
            reason: "closed".to_owned(),
            attempts: 1,
        },
    }
}

fn due(consumer: ConsumerId, text: &str) -> Park {
    park(consumer, text, Waits::Retry(Duration::ZERO))
}

fn dead(consumer: ConsumerId, text: &str) -> Park {
    park(consumer, text, Waits::Person)
}

/// Rows without their records.
async fn add<S: QuarantineStore>(store: &S, parks: &[Park]) -> Vec<i64> {
    let mut tx = begin(store).await;
    assert!(tx.park(parks).await.unwrap().iter().all(|added| *added));
    let rows = tx.page(parks[0].consumer, 0, 100).await.unwrap();
    commit(tx).await;
    rows.iter().map(|row| row.row).collect()
}

/// Records that say "parked", of the content that all rows have.
async fn record_parked<S: Store>(store: &S, owners: &[ConsumerId], text: &str) {
    for owner in owners {
        record(store, *owner, text, fingerprint(7), Outcome::of(OutcomeKind::Parked)).await;
    }
}

async fn record<S: Store>(store: &S, owner: ConsumerId, text: &str, fingerprint: Fingerprint, outcome: Outcome) {
    let mut tx = begin(store).await;
    let request = ClaimRequest { consumer: owner, key: key(text), fingerprint, id_hash: None };
    assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
    tx.record(&[(owner, key(text), outcome)]).await.unwrap();
    commit(tx).await;
}

async fn recorded<S: Store>(store: &S, owner: ConsumerId, text: &str) -> OutcomeKind {
    let mut tx = begin(store).await;
    let request = ClaimRequest { consumer: owner, key: key(text), fingerprint: fingerprint(7), id_hash: None };
    let answer = claim(&mut tx, &request).await;
    tx.rollback().await;
    match answer {
        Claim::Duplicate(earlier) => earlier.outcome.kind(),
        other => panic!("{text}: expected a duplicate, got {other:?}"),
    }
}

async fn end_all<S: QuarantineStore>(store: &S, consumer: ConsumerId) {
    let mut tx = begin(store).await;
    let request = ParkLease { consumer, max: 100, lease: Duration::from_secs(30) };
    let leased = tx.lease_parked(&request).await.unwrap();
    assert!(!leased.is_empty());
    commit(tx).await;
    let mut tx = begin(store).await;
    tx.end_parked(&leased.iter().map(|row| row.receipt).collect::<Vec<_>>()).await.unwrap();
    commit(tx).await;
}

async fn discard<S: QuarantineStore>(store: &S, row: i64) {
    let mut tx = begin(store).await;
    assert_eq!(tx.discard(&[row], "a test").await.unwrap(), [true]);
    commit(tx).await;
}

async fn bind<S: HorizonStore>(store: &S, consumer: ConsumerId, scheme: Scheme) {
    let mut tx = begin(store).await;
    tx.set_binding(consumer, &Binding { scheme, was: None }).await.unwrap();
    commit(tx).await;
}

async fn shared_records<S: Store>(store: &S) -> ConsumerId {
    store.consumer(&ConsumerName::global()).await.unwrap()
}

fn other_scheme() -> Fingerprint {
    let known = fingerprint(7);
    Fingerprint::from_stored(known.scheme() + 1, known.hash())
}

/// It says "parked" under the same key, and is neither the row's own nor shared.
async fn a_row_that_ends_leaves_the_record_of_a_third_consumer<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, third) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    add(store, &[due(ours, "a")]).await;
    record_parked(store, &[ours, third], "a").await;
    end_all(store, ours).await;
    assert_eq!(recorded(store, ours, "a").await, OutcomeKind::Applied);
    assert_eq!(recorded(store, third, "a").await, OutcomeKind::Parked);
}

/// One that is bound to keys of its own does not: `a_shared_record_is_nothing_to_a_consumer_with_keys_of_its_own`.
async fn a_row_of_a_consumer_that_shares_its_keys_settles_the_shared_record<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, shared) = (consumer(store, "invoices").await, shared_records(store).await);
    bind(store, ours, Scheme { scope: "global".to_owned(), ..Scheme::own_keys() }).await;
    add(store, &[due(ours, "a")]).await;
    record_parked(store, &[shared], "a").await;
    end_all(store, ours).await;
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Applied);
}

/// Another consumer's row keeps it, if it has the same key and the same content.
async fn only_a_row_of_the_same_message_keeps_a_shared_record_parked<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let shared = shared_records(store).await;
    add(store, &["a", "b", "c"].map(|text| due(ours, text))).await;
    let by_scheme = Park { owns_record: false, fingerprint: other_scheme(), ..dead(other, "b") };
    add(store, &[dead(other, "under another key"), by_scheme, dead(other, "c")]).await;
    for text in ["a", "b", "c"] {
        record_parked(store, &[shared], text).await;
    }
    end_all(store, ours).await;
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Applied);
    assert_eq!(recorded(store, shared, "b").await, OutcomeKind::Applied);
    assert_eq!(recorded(store, shared, "c").await, OutcomeKind::Parked);
}

/// Of a consumer that is bound to keys of its own, it is another record that says so.
async fn only_a_row_of_a_consumer_that_shares_its_keys_keeps_a_shared_record_parked<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let (apart, sharing) = own_and_shared_keys(store).await;
    let shared = shared_records(store).await;
    add(store, &["a", "b"].map(|text| due(ours, text))).await;
    add(store, &[dead(apart, "a")]).await;
    add(store, &[dead(sharing, "b")]).await;
    record_parked(store, &[shared], "a").await;
    record_parked(store, &[shared], "b").await;
    end_all(store, ours).await;
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Applied);
    assert_eq!(recorded(store, shared, "b").await, OutcomeKind::Parked);
}

/// Two consumers: one is bound to keys of its own, the other to keys that it shares.
async fn own_and_shared_keys<S: HorizonStore>(store: &S) -> (ConsumerId, ConsumerId) {
    let (apart, sharing) = (consumer(store, "reports").await, consumer(store, "letters").await);
    bind(store, apart, Scheme::own_keys()).await;
    bind(store, sharing, Scheme { scope: "global".to_owned(), ..Scheme::own_keys() }).await;
    (apart, sharing)
}

/// Shared records "a", which names the other consumer, and "b", which names the one whose rows these are. The other one has
/// parked both messages as well, "a" under a key of another deployment.
async fn named_records<S: QuarantineStore>(store: &S, park: fn(ConsumerId, &str) -> Park) -> (ConsumerId, Vec<i64>) {
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let shared = shared_records(store).await;
    let rows = add(store, &["a", "b"].map(|text| park(ours, text))).await;
    add(store, &["of a", "b"].map(|text| dead(other, text))).await;
    for (text, parker) in [("a", other), ("b", ours)] {
        record(store, shared, text, fingerprint(7), Outcome::parked_by(parker, shared)).await;
    }
    (ours, rows)
}

async fn a_shared_record_that_names_a_consumer_is_settled_by_its_row_alone<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let (ours, _) = named_records(store, due).await;
    end_all(store, ours).await;
    let shared = shared_records(store).await;
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Parked);
    assert_eq!(recorded(store, shared, "b").await, OutcomeKind::Applied);
}

async fn a_shared_record_that_names_a_consumer_is_rejected_by_its_discard_alone<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let (ours, rows) = named_records(store, dead).await;
    let shared = shared_records(store).await;
    // Without a name, a record of its own would leave it the shared one beside.
    record_parked(store, &[ours], "b").await;
    for row in rows {
        discard(store, row).await;
    }
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Parked);
    assert_eq!(recorded(store, shared, "b").await, OutcomeKind::Rejected);
}

/// Fingerprints were made otherwise when the other row was parked: the record can't be compared with the one that goes.
async fn a_discard_leaves_the_record_of_a_row_with_just_its_content<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, shared) = (consumer(store, "invoices").await, shared_records(store).await);
    let rows = add(store, &["a", "b", "c"].map(|text| dead(ours, text))).await;
    let of_today = |consumer, text| Park { fingerprint: other_scheme(), ..dead(consumer, text) };
    add(store, &[of_today(ours, "a")]).await;
    add(store, &[of_today(consumer(store, "reports").await, "b")]).await;
    record(store, ours, "a", other_scheme(), Outcome::of(OutcomeKind::Parked)).await;
    record(store, shared, "b", other_scheme(), Outcome::of(OutcomeKind::Parked)).await;
    record(store, ours, "c", other_scheme(), Outcome::of(OutcomeKind::Parked)).await;
    for row in &rows[..3] {
        discard(store, *row).await;
    }
    let mut tx = begin(store).await;
    let said = [tx.remembered(ours, &[key("a"), key("c")]).await, tx.remembered(shared, &[key("b")]).await];
    tx.rollback().await;
    let said: Vec<_> = said.into_iter().flat_map(Result::unwrap).map(|said| said.unwrap().outcome).collect();
    assert_eq!(said, [OutcomeKind::Parked, OutcomeKind::Rejected, OutcomeKind::Parked]);
}

/// Retention counts from there: a message that waited for a month and is applied now is remembered from now on.
async fn a_settled_record_is_as_old_as_the_end_of_its_row<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    record_parked(store, &[ours], "a").await;
    add(store, &[due(ours, "a")]).await;
    let recorded_at = oldest(store, ours).await;
    let mut later = 0;
    // Databases write records by their own clocks, and some count in milliseconds.
    eventually("a record is later than the first", async || {
        later += 1;
        record_parked(store, &[other], &format!("later {later}")).await;
        newer_than(store, other, recorded_at).await
    })
    .await;
    end_all(store, ours).await;
    assert!(oldest(store, ours).await > recorded_at);
}

async fn old<S: QuarantineStore>(store: &S, consumer: ConsumerId, before: Timestamp) -> OldRecords {
    let mut tx = begin(store).await;
    let old = tx.old_records(consumer, before).await.unwrap();
    tx.rollback().await;
    old
}

/// When the oldest record of a consumer was written.
async fn oldest<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> Timestamp {
    old(store, consumer, far_future()).await.oldest.unwrap()
}

async fn newer_than<S: QuarantineStore>(store: &S, consumer: ConsumerId, than: Timestamp) -> bool {
    let until_then = old(store, consumer, than + Duration::from_micros(1)).await;
    until_then.records < old(store, consumer, far_future()).await.records
}

fn far_future() -> Timestamp {
    "2200-01-01T00:00:00Z".parse().unwrap()
}

/// Another consumer that is bound to keys of its own says nothing of the one whose row goes.
async fn a_discard_asks_the_binding_of_its_own_consumer<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let shared = shared_records(store).await;
    bind(store, other, Scheme::own_keys()).await;
    let rows = add(store, &[dead(ours, "a")]).await;
    record_parked(store, &[shared], "a").await;
    discard(store, rows[0]).await;
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Rejected);
}

/// Beside a record of its own, the shared one is another row's only if that has the same content by the same scheme.
async fn a_discard_heeds_rows_of_the_same_content_alone<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let shared = shared_records(store).await;
    let rows = add(store, &[dead(ours, "a")]).await;
    add(store, &[Park { owns_record: false, fingerprint: other_scheme(), ..dead(other, "a") }]).await;
    record_parked(store, &[ours, shared], "a").await;
    discard(store, rows[0]).await;
    assert_eq!(recorded(store, ours, "a").await, OutcomeKind::Rejected);
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Rejected);
}

/// Beside a record of its own, the shared one is another row's only if the consumer of that shares its keys.
async fn a_discard_heeds_rows_of_consumers_that_share_their_keys_alone<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let (apart, sharing) = own_and_shared_keys(store).await;
    let shared = shared_records(store).await;
    let rows = add(store, &["a", "b"].map(|text| dead(ours, text))).await;
    add(store, &[dead(apart, "a")]).await;
    add(store, &[dead(sharing, "b")]).await;
    record_parked(store, &[ours, shared], "a").await;
    record_parked(store, &[ours, shared], "b").await;
    for row in rows {
        discard(store, row).await;
    }
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Rejected);
    assert_eq!(recorded(store, shared, "b").await, OutcomeKind::Parked);
}

/// Whatever its row believes to own, and though it has no record of its own.
async fn a_discard_of_a_consumer_with_keys_of_its_own_leaves_shared_records<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, shared) = (consumer(store, "invoices").await, shared_records(store).await);
    bind(store, ours, Scheme::own_keys()).await;
    let rows = add(store, &[dead(ours, "a")]).await;
    record_parked(store, &[shared], "a").await;
    discard(store, rows[0]).await;
    assert_eq!(recorded(store, shared, "a").await, OutcomeKind::Parked);
}
