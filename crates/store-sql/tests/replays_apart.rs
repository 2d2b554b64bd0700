//! What a driver does to its replay it does to no other, and what is counted is of one replay and one order key.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, claim, commit, consumer, fingerprint};
use oncebox_core::parked::{Cause, LeasedPark, Park, ParkLease, Parking, PutBack, Verdict, Waits};
use oncebox_core::quarantine::{Quarantine, QuarantineStore, Superseded};
use oncebox_core::replay::{Hold, OnTheirWay, ReplayId, ReplaySpec, Replays};
use oncebox_core::{ClaimRequest, Class, Clock, ConsumerId, Inbox, Key, Message, Outcome, OutcomeKind, Transaction};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture, run};

const LEASE: Duration = Duration::from_secs(30);

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
    of_two_replays_that_are_held_one_is_let_go,
    a_revived_row_is_held_up_by_an_earlier_one_of_its_key_and_consumer,
    a_revived_row_that_failed_is_not_held_up,
    a_saved_replay_says_when,
    an_edited_row_is_of_no_replay,
}

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn dead(consumer: ConsumerId, order_key: Option<&str>, text: &str) -> Park {
    let class = Some(Class::Permanent);
    Park {
        consumer,
        message: Arc::new(Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned())),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: order_key.map(str::to_owned),
        verdict: Verdict {
            waits: Waits::Person,
            class,
            cause: Cause::new(class, "noted", "closed"),
            reason: "closed".to_owned(),
            attempts: 1,
        },
    }
}

async fn add<S: QuarantineStore>(store: &S, parks: &[Park]) -> Vec<i64> {
    let mut tx = begin(store).await;
    for park in parks {
        let Park { consumer, key, fingerprint, .. } = park.clone();
        claim(&mut tx, &ClaimRequest { consumer, key, fingerprint, id_hash: None }).await;
        tx.record(&[(park.consumer, park.key.clone(), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    }
    assert!(tx.park(parks).await.unwrap().iter().all(|added| *added));
    let rows = tx.page(parks[0].consumer, 0, 100).await.unwrap();
    commit(tx).await;
    rows.iter().map(|row| row.row).collect()
}

async fn create<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> ReplayId {
    let spec = ReplaySpec {
        consumer,
        filter: String::new(),
        as_of: ManualClock::new().now(),
        until: 1000,
        canary: 0,
        rate: None,
        in_flight_max: 100,
        stop_permille: 100,
        force: false,
        who: "ada".to_owned(),
        why: "the bank is open again".to_owned(),
    };
    let mut tx = begin(store).await;
    let id = tx.create_replay(&spec).await.unwrap();
    commit(tx).await;
    id
}

async fn revive<S: QuarantineStore>(store: &S, rows: &[i64], replay: ReplayId) {
    let mut tx = begin(store).await;
    assert!(tx.revive(rows, Some(replay)).await.unwrap().iter().all(|done| *done));
    commit(tx).await;
}

/// Leases what is due and gives it up again, under this order key if it waited for a version.
async fn fail<S: QuarantineStore>(store: &S, consumer: ConsumerId, order_key: Option<&str>) {
    let mut tx = begin(store).await;
    let leased = tx.lease_parked(&ParkLease { consumer, max: 100, lease: LEASE }).await.unwrap();
    assert!(!leased.is_empty());
    let verdict = dead(consumer, None, "any").verdict;
    let put_back = |row: &LeasedPark| PutBack::new(row.receipt, verdict.clone()).under(order_key.map(str::to_owned));
    tx.put_back(&leased.iter().map(put_back).collect::<Vec<_>>()).await.unwrap();
    commit(tx).await;
}

async fn on_their_way<S: QuarantineStore>(store: &S, consumer: ConsumerId, id: ReplayId) -> OnTheirWay {
    let mut tx = begin(store).await;
    let found = tx.on_their_way(consumer, id).await.unwrap();
    tx.rollback().await;
    found
}

async fn hold<S: QuarantineStore>(store: &S, id: ReplayId) -> Hold {
    let mut tx = begin(store).await;
    let hold = tx.hold_replay(id, None, LEASE).await.unwrap();
    commit(tx).await;
    hold
}

/// Both were taken once, so their fences are equal.
async fn of_two_replays_that_are_held_one_is_let_go<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let (one, other) = (create(store, ours).await, create(store, ours).await);
    let Hold::Held(held) = hold(store, one).await else { panic!("nothing holds it") };
    let Hold::Held(theirs) = hold(store, other).await else { panic!("nothing holds it") };
    assert_eq!(held.fence, theirs.fence, "the case needs equal fences");
    let mut tx = begin(store).await;
    tx.let_go_replay(one, held.fence).await.unwrap();
    commit(tx).await;
    assert!(matches!(hold(store, one).await, Hold::Held(_)));
    assert!(matches!(hold(store, other).await, Hold::Busy(_)));
}

/// A dead one counts as dead alone; a later one, or one of another consumer, holds nothing up.
async fn a_revived_row_is_held_up_by_an_earlier_one_of_its_key_and_consumer<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    add(store, &[dead(other, Some("a"), "a")]).await;
    let rows = add(store, &["1", "2"].map(|text| dead(ours, Some("a"), text))).await;
    let id = create(store, ours).await;
    revive(store, &rows[..1], id).await;
    assert_eq!(on_their_way(store, ours, id).await, OnTheirWay { live: 1, held_up: 0, failed: 0 });
    assert_eq!(on_their_way(store, other, id).await, OnTheirWay { live: 0, held_up: 0, failed: 0 });
    fail(store, ours, None).await;
    revive(store, &rows[1..], id).await;
    assert_eq!(on_their_way(store, ours, id).await, OnTheirWay { live: 0, held_up: 1, failed: 1 });
    revive(store, &rows[..1], id).await;
    let mut tx = begin(store).await;
    let leased = tx.lease_parked(&ParkLease { consumer: ours, max: 1, lease: LEASE }).await.unwrap();
    tx.release_parked(&[leased[0].receipt], LEASE).await.unwrap();
    commit(tx).await;
    assert_eq!(on_their_way(store, ours, id).await, OnTheirWay { live: 2, held_up: 0, failed: 0 });
}

/// One that fails behind a gap stands behind a dead row once the gap is given up as well.
async fn a_revived_row_that_failed_is_not_held_up<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let mut gap = dead(ours, Some("a"), "1");
    gap.verdict.waits = Waits::Gap(Duration::ZERO);
    let rows = add(store, &[gap, dead(ours, Some("a"), "2")]).await;
    let id = create(store, ours).await;
    revive(store, &rows[1..], id).await;
    fail(store, ours, Some("a")).await;
    assert_eq!(on_their_way(store, ours, id).await, OnTheirWay { live: 0, held_up: 0, failed: 1 });
}

/// Lists of replays show when something last happened.
async fn a_saved_replay_says_when<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let id = create(store, ours).await;
    let read = async || {
        let mut tx = begin(store).await;
        let replay = tx.replay(id).await.unwrap().unwrap();
        tx.rollback().await;
        replay
    };
    let before = read().await;
    setup.advance(Duration::from_secs(5)).await;
    let mut tx = begin(store).await;
    tx.save_replay(&before).await.unwrap();
    commit(tx).await;
    assert!(read().await.changed_at > before.changed_at);
}

/// It was revived by one, failed, and is another message now: that replay must not count it.
async fn an_edited_row_is_of_no_replay<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let rows = add(store, &[dead(ours, None, "1")]).await;
    let id = create(store, ours).await;
    revive(store, &rows, id).await;
    fail(store, ours, None).await;
    assert_eq!(on_their_way(store, ours, id).await, OnTheirWay { live: 0, held_up: 0, failed: 1 });
    let mut tx = begin(store).await;
    assert_eq!(tx.supersede(rows[0], &dead(ours, None, "2"), 1, "edited").await.unwrap(), Superseded::Done);
    assert_eq!(tx.parked(rows[0]).await.unwrap().unwrap().replay, None);
    commit(tx).await;
    assert_eq!(on_their_way(store, ours, id).await, OnTheirWay { live: 0, held_up: 0, failed: 0 });
}
