//! What is done to a parked row is done to no other: of another consumer, another key, or a key whose hash is the same.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{PostgresPlace, SqlitePlace, begin, claim, commit, consumer, fingerprint, request};
use oncebox_core::horizon::Consumers;
use oncebox_core::parked::{
    Cause, LeasedPark, Park, ParkLease, ParkReceipt, ParkStore, Parking, PutBack, Verdict, Waiting, Waits,
};
use oncebox_core::{
    ClaimRequest, Class, ConsumerId, Fingerprint, Inbox, Key, Message, Outcome, OutcomeKind, Store, Timestamp,
    Transaction,
};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture, run};

const LEASE: Duration = Duration::from_secs(30);
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
    a_gap_is_not_noted_as_waiting_behind_a_row,
    an_extension_is_for_the_rows_that_were_named,
    a_release_is_for_the_rows_that_were_named,
    starts_are_forgotten_for_the_pairs_that_were_named,
    rows_of_another_consumer_hold_up_nothing_here,
    rows_that_wait_for_a_gap_hold_up_nothing_one_at_a_time,
    what_is_behind_comes_when_all_before_it_is_gone,
    a_record_belongs_to_the_row_of_its_content_alone,
    another_message_that_is_parked_keeps_no_row_from_its_end,
    a_row_that_is_put_back_takes_the_record_of_its_content_alone,
}

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn verdict(waits: Waits) -> Verdict {
    let class = Some(Class::Transient);
    let cause = Cause::new(class, "noted", "bank-closed");
    Verdict { waits, class, cause, reason: "closed".to_owned(), attempts: 1 }
}

fn park(consumer: ConsumerId, order_key: Option<&str>, text: &str, waits: Waits) -> Park {
    Park {
        consumer,
        message: Arc::new(Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned())),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: order_key.map(str::to_owned),
        verdict: verdict(waits),
    }
}

async fn add<S: ParkStore>(store: &S, parks: &[Park]) {
    let mut tx = begin(store).await;
    assert!(tx.park(parks).await.unwrap().iter().all(|added| *added));
    commit(tx).await;
}

async fn lease<S: ParkStore>(store: &S, consumer: ConsumerId, max: usize) -> Vec<LeasedPark> {
    let mut tx = begin(store).await;
    let leased = tx.lease_parked(&ParkLease { consumer, max, lease: LEASE }).await.unwrap();
    commit(tx).await;
    leased
}

fn texts(leased: &[LeasedPark]) -> Vec<String> {
    leased.iter().map(|leased| String::from_utf8_lossy(&leased.message.payload).into_owned()).collect()
}

fn receipts(leased: &[LeasedPark]) -> Vec<ParkReceipt> {
    leased.iter().map(|leased| leased.receipt).collect()
}

async fn end<S: ParkStore>(store: &S, rows: &[ParkReceipt]) {
    let mut tx = begin(store).await;
    tx.end_parked(rows).await.unwrap();
    commit(tx).await;
}

/// Two rows in hand have the same fence: the one whose lease isn't extended comes again.
async fn an_extension_is_for_the_rows_that_were_named<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    add(store, &[park(ours, None, "1", NOW), park(ours, None, "2", NOW)]).await;
    let rows = lease(store, ours, 10).await;
    assert_eq!(rows[0].receipt.fence, rows[1].receipt.fence, "the case needs equal fences");
    let mut tx = begin(store).await;
    tx.extend_parked(&receipts(&rows[..1]), LEASE * 3).await.unwrap();
    commit(tx).await;
    setup.advance(LEASE * 2).await;
    assert_eq!(texts(&lease(store, ours, 10).await), ["2"]);
}

/// Rows that could not be tried have no record. When one of them gets one, the others still have none: not that of another
/// consumer, of another key, of another content, or of a content that was hashed in another way.
async fn a_record_belongs_to_the_row_of_its_content_alone<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let without = |park: Park| Park { owns_record: false, ..park };
    let first = without(park(ours, None, "1", NOW));
    let content = first.fingerprint;
    let other_scheme = Fingerprint::from_stored(content.scheme() + 1, content.hash());
    let parks = [
        first.clone(),
        without(park(ours, None, "2", NOW)),
        Park { fingerprint: fingerprint(8), ..first.clone() },
        Park { fingerprint: other_scheme, ..first.clone() },
        Park { consumer: other, ..first.clone() },
    ];
    add(store, &parks).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.park(&[Park { owns_record: true, ..first }]).await.unwrap(), [false], "it is there");
    commit(tx).await;
    for (consumer, expected) in [(ours, vec![true, false, false, false]), (other, vec![false])] {
        let mut leased = lease(store, consumer, 10).await;
        leased.sort_by_key(|leased| leased.receipt.row);
        assert_eq!(leased.iter().map(|leased| leased.owns_record).collect::<Vec<_>>(), expected);
    }
}

/// A transaction that has met the record of a parked message may end the row of another.
async fn another_message_that_is_parked_keeps_no_row_from_its_end<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let mut tx = begin(store).await;
    claim(&mut tx, &request(ours, "1")).await;
    tx.record(&[(ours, key("1"), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    commit(tx).await;
    add(store, &[park(ours, None, "1", NOW), park(ours, None, "2", NOW)]).await;
    let rows = lease(store, ours, 10).await;
    let [first, second] = ["1", "2"].map(|text| rows.iter().find(|row| row.message.payload == text).unwrap().receipt);
    let mut tx = begin(store).await;
    claim(&mut tx, &request(ours, "1")).await;
    assert!(tx.end_parked(&[first]).await.is_err(), "its record says that it is parked");
    tx.rollback().await;
    let mut tx = begin(store).await;
    claim(&mut tx, &request(ours, "1")).await;
    tx.end_parked(&[second]).await.unwrap();
    commit(tx).await;
}

/// The same where the record came while the row was in hand.
async fn a_row_that_is_put_back_takes_the_record_of_its_content_alone<F: StoreFixture<Store: ParkStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let texts = ["its own", "another consumer's", "another key's", "applied", "another content", "another scheme"];
    let parks = texts.map(|text| Park { owns_record: false, ..park(ours, None, text, NOW) });
    add(store, &parks).await;
    let leased = lease(store, ours, 10).await;
    let content = fingerprint(7);
    let scheme = Fingerprint::from_stored(content.scheme() + 1, content.hash());
    let records = [
        (ours, "its own", content, OutcomeKind::Parked),
        (other, "another consumer's", content, OutcomeKind::Parked),
        (ours, "applied", content, OutcomeKind::Applied),
        (ours, "another content", fingerprint(8), OutcomeKind::Parked),
        (ours, "another scheme", scheme, OutcomeKind::Parked),
    ];
    let mut tx = begin(store).await;
    for (consumer, text, fingerprint, outcome) in records {
        claim(&mut tx, &ClaimRequest { consumer, key: key(text), fingerprint, id_hash: None }).await;
        tx.record(&[(consumer, key(text), Outcome::of(outcome))]).await.unwrap();
    }
    let back: Vec<_> = leased.iter().map(|leased| PutBack::new(leased.receipt, verdict(NOW))).collect();
    tx.put_back(&back).await.unwrap();
    commit(tx).await;
    for leased in lease(store, ours, 10).await {
        let text = String::from_utf8_lossy(&leased.message.payload).into_owned();
        assert_eq!(leased.owns_record, text == "its own", "{text}");
    }
}

/// Nor is another row in hand released with the one that is.
async fn a_release_is_for_the_rows_that_were_named<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    add(store, &[park(ours, None, "1", NOW), park(ours, None, "2", NOW)]).await;
    let rows = lease(store, ours, 10).await;
    let mut tx = begin(store).await;
    tx.release_parked(&receipts(&rows[..1]), Duration::ZERO).await.unwrap();
    commit(tx).await;
    assert_eq!(texts(&lease(store, ours, 10).await), ["1"]);
    end(store, &receipts(&rows[1..])).await;
}

/// Of keys and consumers, only what was named together.
async fn starts_are_forgotten_for_the_pairs_that_were_named<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (one, two) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let all = [(one, "a"), (one, "b"), (two, "a"), (two, "b")];
    let start = async |whose, text| {
        let mut tx = begin(store).await;
        let starts = tx.note_start(whose, &key(text), Waiting::default()).await.unwrap();
        commit(tx).await;
        starts
    };
    for (whose, text) in all {
        assert_eq!(start(whose, text).await, 1);
    }
    let mut tx = begin(store).await;
    tx.forget_starts(&[(one, key("a")), (two, key("b"))]).await.unwrap();
    commit(tx).await;
    let mut after = Vec::new();
    for (whose, text) in all {
        after.push(start(whose, text).await);
    }
    assert_eq!(after, [1, 2, 2, 1]);
}

/// Whatever another consumer has under the same order keys, dead or due, leased one at a time.
async fn rows_of_another_consumer_hold_up_nothing_here<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for (whose, waits) in [(other, Waits::Person), (ours, NOW)] {
        let rows = ["a", "b", "c"].map(|text| park(whose, Some(text), text, waits));
        add(store, &rows).await;
    }
    for expected in ["a", "b", "c"] {
        assert_eq!(texts(&lease(store, ours, 1).await), [expected]);
    }
    assert!(lease(store, other, 10).await.is_empty());
    setup.advance(LEASE * 2).await;
    assert_eq!(lease(store, ours, 10).await.len(), 3, "those whose lease ran out come again");
}

/// They stand outside the order of their key.
async fn rows_that_wait_for_a_gap_hold_up_nothing_one_at_a_time<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let gaps = ["a", "b"].map(|at| park(ours, Some(at), &format!("gap of {at}"), Waits::Gap(LEASE * 10)));
    add(store, &gaps).await;
    let rows = ["a", "b"].map(|at| park(ours, Some(at), at, NOW));
    add(store, &rows).await;
    assert_eq!(texts(&lease(store, ours, 1).await), ["a"]);
    assert_eq!(texts(&lease(store, ours, 1).await), ["b"]);
    setup.advance(LEASE * 10).await;
    let mut all = texts(&lease(store, ours, 10).await);
    all.sort();
    assert_eq!(all, ["a", "b", "gap of a", "gap of b"], "and no row holds up a gap");
}

/// Rows behind others are noted as such by leases that found nothing; each comes in its turn all the same, whatever stands
/// between them: rows of another consumer, of another key, or such that wait for a gap.
async fn what_is_behind_comes_when_all_before_it_is_gone<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for text in ["1", "2", "3"] {
        let gap = park(ours, Some("a"), &format!("gap {text}"), Waits::Gap(LEASE * 100));
        let beside = park(ours, Some("b"), &format!("beside {text}"), Waits::Person);
        add(store, &[park(ours, Some("a"), text, NOW), park(other, Some("a"), text, NOW), gap, beside]).await;
    }
    for whose in [ours, other] {
        for expected in ["1", "2", "3"] {
            let rows = lease(store, whose, 10).await;
            assert_eq!(texts(&rows), [expected]);
            assert!(lease(store, whose, 10).await.is_empty());
            end(store, &receipts(&rows)).await;
        }
    }
}

/// What both dialects do after `collide` has given the rows of key `a` the hash of key `b`.
async fn keys_with_one_hash_stay_apart<S: ParkStore>(store: &S, collide: impl AsyncFn()) {
    let ours = consumer(store, "invoices").await;
    let rows = [
        park(ours, Some("a"), "a1", NOW),
        park(ours, Some("a"), "gap of a", Waits::Gap(LEASE * 10)),
        park(ours, Some("b"), "b1", NOW),
    ];
    add(store, &rows).await;
    collide().await;
    let both = lease(store, ours, 10).await;
    assert_eq!(texts(&both), ["a1", "b1"], "the row of one key held up that of the other");
    let of_b = both.iter().find(|leased| texts(std::slice::from_ref(leased)) == ["b1"]).unwrap();
    end(store, &[of_b.receipt]).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.is_blocked(ours, &["b"]).await.unwrap(), [false]);
    assert_eq!(tx.count_blocking(ours, &["b"], 10).await.unwrap(), [0]);
    assert_eq!(tx.count_gaps(ours, "b").await.unwrap(), 0);
    tx.wake_gaps(ours, &["b"]).await.unwrap();
    commit(tx).await;
    assert!(lease(store, ours, 10).await.is_empty(), "the gap of the other key was woken");
}

#[tokio::test]
async fn keys_with_one_hash_stay_apart_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let collide = async || {
        let of_b = "(select order_hash from oncebox_parked where order_key = cast('b' as blob))";
        place.run(&format!("update oncebox_parked set order_hash = {of_b}")).await;
    };
    keys_with_one_hash_stay_apart(&store, collide).await;
}

#[tokio::test]
async fn keys_with_one_hash_stay_apart_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("keys_with_one_hash_stay_apart_on_postgres") else { return };
    let store = place.open().await;
    let collide = async || {
        place.run("update parked set order_hash = (select order_hash from parked where order_key = 'b'::bytea)").await;
    };
    keys_with_one_hash_stay_apart(&store, collide).await;
}

/// Whether its version has come is looked at when it is due, whatever else waits before it.
async fn a_gap_is_not_noted_as_waiting_behind_a_row<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let rows = [
        park(ours, Some("k"), "dead", Waits::Person),
        park(ours, None, "free", NOW),
        park(ours, Some("k"), "a gap", Waits::Gap(Duration::ZERO)),
    ];
    add(store, &rows).await;
    // The second lease finds it among those that are due, and is full.
    assert_eq!(texts(&lease(store, ours, 1).await), ["free"]);
    assert_eq!(texts(&lease(store, ours, 1).await), ["a gap"]);
    // Nothing would wake it, were it noted as waiting when the process that has it dies.
    setup.advance(LEASE).await;
    assert_eq!(texts(&lease(store, ours, 10).await), ["free", "a gap"]);
}

/// What both dialects do after `age` has made all records old.
async fn a_record_that_is_reclaimed_is_young_again<S: Store<Tx: Consumers>>(store: &S, age: impl AsyncFn()) {
    let ours = consumer(store, "invoices").await;
    let mut tx = begin(store).await;
    claim(&mut tx, &request(ours, "a")).await;
    tx.record(&[(ours, key("a"), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    commit(tx).await;
    age().await;
    let old = async || {
        let mut tx = begin(store).await;
        let old = tx.old_records(ours, Timestamp::from_second(1_000_000).unwrap()).await.unwrap();
        tx.rollback().await;
        old.records
    };
    assert_eq!(old().await, 1);
    let mut tx = begin(store).await;
    assert_eq!(tx.reclaim(&[(ours, key("a"))]).await.unwrap(), [true]);
    commit(tx).await;
    assert_eq!(old().await, 0, "retention would take it for something handled long ago");
}

#[tokio::test]
async fn a_record_that_is_reclaimed_is_young_again_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let age = async || place.run("update oncebox_inbox set processed_at = 0").await;
    a_record_that_is_reclaimed_is_young_again(&store, age).await;
}

#[tokio::test]
async fn a_record_that_is_reclaimed_is_young_again_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("a_record_that_is_reclaimed_is_young_again_on_postgres") else { return };
    let store = place.open().await;
    let age = async || place.run("update inbox set processed_at = 'epoch'").await;
    a_record_that_is_reclaimed_is_young_again(&store, age).await;
}
