//! The inbox record is the arbiter: parked, or a claim, and never both.

use oncebox_core::parked::{Park, ParkStore, Parking, PutBack};
use oncebox_core::{
    Claim, ClaimRequest, ConsumerId, ConsumerName, Fingerprint, Inbox, Key, Outcome, OutcomeKind, Store,
    StoreErrorKind, Transaction,
};
use tokio::task::JoinSet;

use super::steps::{NOW, add, end, lease, parked, receipts, release, verdict};
use crate::eventually::stays_pending;
use crate::store::steps::{assert_kind, begin, claim, claim_and_commit, commit, consumer, fingerprint, look, request};
use crate::store::{Setup, StoreFixture};

/// What the record of a parked message keeps beside its outcome, in every case: it must not survive the reclaim.
fn kept() -> Outcome {
    Outcome::from_stored(OutcomeKind::Parked, Some("why".into()))
}

fn place(request: &ClaimRequest) -> (ConsumerId, Key) {
    (request.consumer, request.key.clone())
}

/// Claims and records as parked, as whoever parks a message does.
async fn set_aside<S: Store>(store: &S, requests: &[&ClaimRequest]) {
    set_aside_as(store, requests, &kept()).await;
}

async fn set_aside_as<S: Store>(store: &S, requests: &[&ClaimRequest], outcome: &Outcome) {
    let mut tx = begin(store).await;
    for request in requests {
        assert_eq!(claim(&mut tx, request).await, Claim::Fresh);
        let (consumer, key) = place(request);
        tx.record(&[(consumer, key, outcome.clone())]).await.expect("the outcome of a claimed key can be recorded");
    }
    commit(tx).await;
}

async fn reclaim<T: Inbox>(tx: &mut T, requests: &[&ClaimRequest]) -> Vec<bool> {
    let keys: Vec<_> = requests.iter().map(|request| place(request)).collect();
    tx.reclaim(&keys).await.expect("records can be reclaimed")
}

/// Reclaims in a transaction of its own and commits it.
async fn reclaim_and_commit<S: Store>(store: &S, request: &ClaimRequest) -> bool {
    let mut tx = begin(store).await;
    let answers = reclaim(&mut tx, &[request]).await;
    commit(tx).await;
    assert_eq!(answers.len(), 1, "one key gets one answer");
    answers[0]
}

async fn stored<S: Store>(store: &S, request: &ClaimRequest) -> Outcome {
    match look(store, request).await {
        Claim::Duplicate(earlier) => earlier.outcome,
        other => panic!("expected a duplicate, got {other:?}"),
    }
}

/// A redelivery of a parked message learns that it is safe and not done.
pub async fn a_claim_of_a_parked_message_says_so<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    set_aside(&setup.store, &[&request]).await;
    assert_eq!(stored(&setup.store, &request).await, kept());
}

/// Whoever comes first runs the message; the next finds it done.
pub async fn a_parked_record_is_reclaimed_once<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    set_aside(&setup.store, &[&request]).await;
    assert!(reclaim_and_commit(&setup.store, &request).await);
    assert!(!reclaim_and_commit(&setup.store, &request).await);
    let mut tx = begin(&setup.store).await;
    assert_eq!(reclaim(&mut tx, &[&request]).await, [false]);
    tx.rollback().await;
}

/// What was applied or rejected, and what was never seen, is not reclaimed, and stays as it is.
pub async fn only_parked_records_are_reclaimed<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let (applied, rejected, unknown) = (request(billing, "applied"), request(billing, "no"), request(billing, "new"));
    claim_and_commit(store, &applied).await;
    let mut tx = begin(store).await;
    claim(&mut tx, &rejected).await;
    let outcome = (billing, rejected.key.clone(), Outcome::rejected("closed"));
    tx.record(&[outcome]).await.expect("the outcome of a claimed key can be recorded");
    commit(tx).await;
    for request in [&applied, &rejected, &unknown] {
        assert!(!reclaim_and_commit(store, request).await);
    }
    assert_eq!(stored(store, &applied).await, Outcome::applied());
    assert_eq!(stored(store, &rejected).await, Outcome::rejected("closed"));
    assert_eq!(look(store, &unknown).await, Claim::Fresh);
}

/// Many at once, answered in their order; the same twice is reclaimed once; another consumer's record is not touched.
pub async fn a_batch_of_reclaims_is_answered_in_its_order<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let [z, applied, a, m] = ["z", "applied", "a", "m"].map(|id| request(billing, id));
    let elsewhere = request(shipping, "a");
    set_aside(store, &[&z, &a, &m, &elsewhere]).await;
    claim_and_commit(store, &applied).await;
    let mut tx = begin(store).await;
    assert!(reclaim(&mut tx, &[]).await.is_empty());
    assert_eq!(reclaim(&mut tx, &[&z, &applied, &a, &z]).await, [true, false, true, false]);
    commit(tx).await;
    assert_eq!(stored(store, &a).await, Outcome::applied());
    assert_eq!(stored(store, &m).await, kept());
    assert_eq!(stored(store, &elsewhere).await, kept());
}

/// After a rollback it is parked as before, and can be reclaimed again.
pub async fn a_reclaim_that_rolled_back_leaves_it_parked<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    set_aside(&setup.store, &[&request]).await;
    for _ in 0..2 {
        let mut tx = begin(&setup.store).await;
        assert_eq!(reclaim(&mut tx, &[&request]).await, [true]);
        tx.rollback().await;
        assert_eq!(stored(&setup.store, &request).await, kept());
    }
}

/// A reclaimed record is a claim like any other: nothing need be written more.
pub async fn a_reclaimed_record_counts_as_applied_with_no_result<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    set_aside(&setup.store, &[&request]).await;
    assert!(reclaim_and_commit(&setup.store, &request).await);
    assert_eq!(stored(&setup.store, &request).await, Outcome::applied());
}

/// Whoever reclaimed a record may record its outcome, parked again included, and reclaim that once more.
pub async fn a_reclaimed_record_takes_an_outcome<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let request = request(consumer(store, "billing").await, "a");
    set_aside(store, &[&request]).await;
    for outcome in [Outcome::of(OutcomeKind::Parked), kept(), Outcome::rejected("closed")] {
        let mut tx = begin(store).await;
        assert_eq!(reclaim(&mut tx, &[&request]).await, [true]);
        let (consumer, key) = place(&request);
        tx.record(&[(consumer, key, outcome.clone())]).await.expect("a reclaimed record takes an outcome");
        commit(tx).await;
        assert_eq!(stored(store, &request).await, outcome);
    }
}

/// Taking back a reclaim parks the record again. Were it deleted, a redelivery would run beside the parked message.
pub async fn an_unclaimed_reclaim_is_parked_as_before<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let (parked, fresh, both) = (request(billing, "parked"), request(billing, "fresh"), request(billing, "both"));
    set_aside(store, &[&parked]).await;
    let mut tx = begin(store).await;
    assert_eq!(reclaim(&mut tx, &[&parked]).await, [true]);
    assert_eq!(claim(&mut tx, &fresh).await, Claim::Fresh);
    // Claimed, parked and reclaimed in one transaction: it was free before.
    assert_eq!(claim(&mut tx, &both).await, Claim::Fresh);
    tx.record(&[(billing, both.key.clone(), kept())]).await.expect("the outcome of a claimed key can be recorded");
    assert_eq!(reclaim(&mut tx, &[&both]).await, [true]);
    let keys: Vec<_> = [&fresh, &parked, &both].map(place).into();
    tx.unclaim(&keys).await.expect("claims can be taken back");
    let outcome = [(billing, parked.key.clone(), Outcome::rejected("too late"))];
    assert!(tx.record(&outcome).await.is_err(), "it is no claim of this transaction any more");
    assert_eq!(reclaim(&mut tx, &[&parked]).await, [true], "and can be reclaimed again");
    tx.unclaim(&[place(&parked)]).await.expect("claims can be taken back");
    commit(tx).await;
    assert_eq!(stored(store, &parked).await, kept());
    assert_eq!(look(store, &fresh).await, Claim::Fresh);
    assert_eq!(look(store, &both).await, Claim::Fresh);
}

fn reclaim_beside<S: Store>(store: &S, request: &ClaimRequest) -> JoinSet<bool> {
    let (store, request) = (store.clone(), request.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { reclaim_and_commit(&store, &request).await });
    tasks
}

/// Of two at once, the second is not answered before the first's fate is known.
pub async fn a_second_reclaim_waits_and_learns_that_the_first_committed<F: StoreFixture<Store: ParkStore>>(
    setup: Setup<F>,
) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    set_aside(&setup.store, &[&request]).await;
    let mut first = begin(&setup.store).await;
    assert_eq!(reclaim(&mut first, &[&request]).await, [true]);
    let mut second = reclaim_beside(&setup.store, &request);
    assert!(stays_pending(second.join_next()).await, "the second was answered while the first was open");
    commit(first).await;
    assert_eq!(second.join_all().await, [false]);
    assert_eq!(stored(&setup.store, &request).await, Outcome::applied());
}

/// And succeeds if the first rolled back.
pub async fn a_second_reclaim_waits_and_succeeds_if_the_first_rolled_back<F: StoreFixture<Store: ParkStore>>(
    setup: Setup<F>,
) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    set_aside(&setup.store, &[&request]).await;
    let mut first = begin(&setup.store).await;
    assert_eq!(reclaim(&mut first, &[&request]).await, [true]);
    let mut second = reclaim_beside(&setup.store, &request);
    assert!(stays_pending(second.join_next()).await, "the second was answered while the first was open");
    first.rollback().await;
    assert_eq!(second.join_all().await, [true]);
}

/// Batches that name the same keys in opposite order wait for each other and do not deadlock; each key goes to one.
pub async fn reclaims_in_opposite_order_both_end<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    const KEYS: usize = 50;
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    for round in 0..5 {
        let requests: Vec<ClaimRequest> = (0..KEYS).map(|n| request(billing, &format!("{round}-{n}"))).collect();
        set_aside(store, &requests.iter().collect::<Vec<_>>()).await;
        let mut tasks = JoinSet::new();
        for turned in [false, true] {
            let (store, mut keys) = (store.clone(), requests.iter().map(place).collect::<Vec<_>>());
            if turned {
                keys.reverse();
            }
            tasks.spawn(async move {
                let mut tx = begin(&store).await;
                let answers = tx.reclaim(&keys).await.expect("batches in opposite order do not deadlock");
                commit(tx).await;
                answers.into_iter().filter(|done| *done).count()
            });
        }
        assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), KEYS);
    }
}

/// What could not be tried is parked before it has a record. Whoever records that it is parked makes the row its owner:
/// by parking it once more, or by putting it back.
pub async fn a_row_that_was_there_before_its_record_owns_it<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let [parked_again, put_back] = ["again", "back"].map(|text| Park { owns_record: false, ..parked(billing, text) });
    add(store, &[parked_again.clone(), put_back.clone()]).await;
    let leased = lease(store, billing).await;
    assert_eq!(leased.iter().map(|row| row.owns_record).collect::<Vec<_>>(), [false, false]);
    assert!(leased.iter().all(|row| row.fingerprint == put_back.fingerprint));
    let record = |park: &Park| ClaimRequest {
        consumer: billing,
        key: park.key.clone(),
        fingerprint: park.fingerprint,
        id_hash: None,
    };
    let mut tx = begin(store).await;
    for park in [&parked_again, &put_back] {
        let request = record(park);
        assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
        let (consumer, key) = place(&request);
        tx.record(&[(consumer, key, kept())]).await.expect("the outcome of a claimed key can be recorded");
    }
    let again = Park { owns_record: true, ..parked_again };
    assert_eq!(tx.park(&[again]).await.expect("messages can be parked"), [false]);
    tx.put_back(&[PutBack::new(leased[1].receipt, verdict(NOW, 2))]).await.expect("a leased row can be put back");
    commit(tx).await;
    release(store, &receipts(&leased[..1]), std::time::Duration::ZERO).await;
    let owns: Vec<bool> = lease(store, billing).await.iter().map(|row| row.owns_record).collect();
    assert_eq!(owns, [true, true]);
}

/// A row does not go as a duplicate of the record that says that it is parked, whatever it knows of that record.
pub async fn a_row_whose_record_says_parked_is_not_ended<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    for (text, owns_record) in [("a", true), ("b", false)] {
        let park = Park { owns_record, ..parked(billing, text) };
        let (key, fingerprint) = (park.key.clone(), park.fingerprint);
        let request = ClaimRequest { consumer: billing, key, fingerprint, id_hash: None };
        add(store, &[park]).await;
        set_aside(store, &[&request]).await;
        let row = receipts(&lease(store, billing).await);
        let mut tx = begin(store).await;
        assert!(matches!(claim(&mut tx, &request).await, Claim::Duplicate(earlier) if earlier.is_parked()));
        assert_kind(tx.end_parked(&row).await, StoreErrorKind::Refused);
        tx.rollback().await;
        // What is about to be applied has its record back.
        let mut tx = begin(store).await;
        claim(&mut tx, &request).await;
        assert_eq!(reclaim(&mut tx, &[&request]).await, [true]);
        tx.end_parked(&row).await.expect("a row that is done can be ended");
        commit(tx).await;
        assert_eq!(stored(store, &request).await, Outcome::applied());
    }
}

/// A row that goes leaves no record that says parked: another deployment, with other keys or another scope, may have written
/// one that whoever ends the row does not know. What says something else, or is of another message, stays.
pub async fn a_row_that_ends_leaves_no_parked_record<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let shared = store.consumer(&ConsumerName::global()).await.expect("shared records have an id");
    let [own, both, no] = ["own", "both", "no"].map(|text| parked(billing, text));
    let elsewhere = Park { consumer: shipping, owns_record: false, fingerprint: fingerprint(8), ..both.clone() };
    add(store, &[own.clone(), both.clone(), no.clone(), elsewhere]).await;
    let record = |consumer, park: &Park| ClaimRequest { consumer, ..of(park) };
    let gone = [record(billing, &own), record(billing, &both), record(shared, &both)];
    let (hash, scheme) = (own.fingerprint.hash(), own.fingerprint.scheme());
    let other_content = ClaimRequest { fingerprint: fingerprint(8), ..record(shared, &own) };
    let other_scheme = Fingerprint::from_stored(scheme + 1, hash);
    let other_scheme = ClaimRequest { fingerprint: other_scheme, ..record(shared, &no) };
    // Shared ones name no consumer, as those of former versions.
    let unnamed = Outcome::of(OutcomeKind::Parked);
    set_aside_as(store, &[&gone[0], &gone[1], &gone[2], &other_content, &other_scheme], &unnamed).await;
    let rejected = record(billing, &no);
    let mut tx = begin(store).await;
    claim(&mut tx, &rejected).await;
    let outcome = (billing, rejected.key.clone(), Outcome::rejected("closed"));
    tx.record(&[outcome]).await.expect("the outcome of a claimed key can be recorded");
    commit(tx).await;
    end(store, &receipts(&lease(store, billing).await)).await.expect("rows that are done can be ended");
    for record in &gone {
        assert_eq!(stored(store, record).await, Outcome::applied());
    }
    assert_eq!(stored(store, &rejected).await, Outcome::rejected("closed"));
    for of_another in [&other_content, &other_scheme] {
        assert_eq!(stored(store, of_another).await, unnamed);
    }
}

/// A shared record that says parked may be that of another consumer's row, which is still there.
pub async fn a_shared_record_of_another_row_stays_parked<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let shared = store.consumer(&ConsumerName::global()).await.expect("shared records have an id");
    let [here, there] = [billing, shipping].map(|consumer| parked(consumer, "a"));
    let [own, shared] = [billing, shared].map(|consumer| ClaimRequest { consumer, ..of(&here) });
    add(store, &[here, there]).await;
    let unnamed = Outcome::of(OutcomeKind::Parked);
    set_aside_as(store, &[&own, &shared], &unnamed).await;
    end(store, &receipts(&lease(store, billing).await)).await.expect("a row that is done can be ended");
    assert_eq!((stored(store, &own).await, stored(store, &shared).await), (Outcome::applied(), unnamed));
    end(store, &receipts(&lease(store, shipping).await)).await.expect("a row that is done can be ended");
    assert_eq!(stored(store, &shared).await, Outcome::applied());
}

/// The claim of a message's own key.
fn of(park: &Park) -> ClaimRequest {
    let (consumer, key) = (park.consumer, park.key.clone());
    ClaimRequest { consumer, key, fingerprint: park.fingerprint, id_hash: None }
}
