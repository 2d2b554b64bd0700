//! What the cases are made of: dead letters, and a runner that applies what is due, as a consumer's does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox_admin::{Actor, Admin, DriveOptions, Filter, Meant, ReplayOptions};
use oncebox_core::parked::{Cause, LeasedPark, Park, ParkLease, Parking, PutBack, Verdict, Waits};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::{
    Claim, ClaimRequest, Class, Clock, ConsumerId, ConsumerName, Ended, Fingerprinter, Inbox, Key, Message, MessageId,
    Outcome, OutcomeKind, Session, Transaction,
};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture};
use tokio::task::JoinSet;

pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(20);

/// Drivers that stir often and lose their hold soon, by the setup's clock.
pub(crate) const DRIVE: DriveOptions =
    DriveOptions { lease: Duration::from_secs(30), poll: Duration::from_millis(5), batch: 100 };

/// As fast as the store goes, all together, whatever fails.
pub(crate) const PLAIN: ReplayOptions =
    ReplayOptions { canary: 0, rate: None, in_flight_max: 1000, stop_permille: 1000, force: false };

pub(crate) fn ada() -> Actor {
    Actor::new("ada", "the bank is open again").unwrap()
}

pub(crate) fn admin<F: StoreFixture<Store: QuarantineStore>>(setup: &Setup<F>) -> Admin<F::Store> {
    Admin::new(setup.store.clone()).with_clock(setup.clock.clone())
}

pub(crate) async fn consumer<S: QuarantineStore>(store: &S) -> ConsumerId {
    store.consumer(&ConsumerName::new("invoices").unwrap()).await.unwrap()
}

pub(crate) async fn meant<S: QuarantineStore>(admin: &Admin<S>, filter: &str) -> Meant {
    admin.meant("invoices", Filter::parse(filter).unwrap()).await.unwrap()
}

pub(crate) async fn begin<S: QuarantineStore>(store: &S) -> S::Tx {
    store.connect().await.unwrap().begin(LOCK_WAIT).await.unwrap()
}

pub(crate) async fn commit<T: Transaction>(tx: T) {
    match tx.commit().await {
        Ended::Committed(_) => {}
        Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => panic!("{error}"),
    }
}

/// A message with this id and payload.
pub(crate) fn message(id: &str, payload: &str) -> Message {
    Message::made_by(&ManualClock::new(), "payment.received")
        .with_id(MessageId::new(id).unwrap())
        .with_payload(payload.to_owned())
}

/// A dead letter with its record.
pub(crate) fn dead(consumer: ConsumerId, message: Message) -> Park {
    let class = Some(Class::Permanent);
    let cause = Cause::new(class, &message.kind, "bank-closed");
    let verdict = Verdict { waits: Waits::Person, class, cause, reason: "the bank is closed".to_owned(), attempts: 3 };
    Park {
        consumer,
        key: Key::id(message.id.as_ref().unwrap().as_str()).unwrap(),
        fingerprint: Fingerprinter::default().fingerprint(&message),
        owns_record: true,
        order_key: message.order_key.clone(),
        message: Arc::new(message),
        verdict,
    }
}

/// Parks messages as an engine does: each that owns a record with one that says so.
pub(crate) async fn park<S: QuarantineStore>(store: &S, parks: &[Park]) {
    for some in parks.chunks(500) {
        let mut tx = begin(store).await;
        let owners = some.iter().filter(|park| park.owns_record);
        let requests: Vec<ClaimRequest> = owners.map(request).collect();
        let claims = tx.claim(&requests).await.unwrap();
        assert!(claims.iter().all(|claim| *claim == Claim::Fresh));
        let parked = |request: ClaimRequest| (request.consumer, request.key, Outcome::of(OutcomeKind::Parked));
        tx.record(&requests.into_iter().map(parked).collect::<Vec<_>>()).await.unwrap();
        assert!(tx.park(some).await.unwrap().iter().all(|added| *added));
        commit(tx).await;
    }
}

pub(crate) fn request(park: &Park) -> ClaimRequest {
    let Park { consumer, key, fingerprint, .. } = park.clone();
    ClaimRequest { consumer, key, fingerprint, id_hash: None }
}

/// Marks a message as applied, long ago.
pub(crate) async fn apply_before<S: QuarantineStore>(store: &S, park: &Park) {
    let mut tx = begin(store).await;
    tx.claim(&[request(park)]).await.unwrap();
    commit(tx).await;
}

/// Records that a message is parked, without a row.
pub(crate) async fn park_before<S: QuarantineStore>(store: &S, park: &Park) {
    let mut tx = begin(store).await;
    assert_eq!(tx.claim(&[request(park)]).await.unwrap(), [Claim::Fresh]);
    tx.record(&[(park.consumer, park.key.clone(), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    commit(tx).await;
}

pub(crate) async fn rows<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> Vec<ParkedRow> {
    let mut tx = begin(store).await;
    let rows = tx.page(consumer, 0, 100_000).await.unwrap();
    tx.rollback().await;
    rows
}

/// Whether a message fails, and for good.
pub(crate) type Fails = fn(&Message) -> bool;

/// Applies what is due until it is dropped.
pub(crate) fn runner<F: StoreFixture<Store: QuarantineStore>>(store: &F::Store, fails: Fails) -> JoinSet<()> {
    let store = store.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let consumer = consumer(&store).await;
        loop {
            if run_due::<F>(&store, consumer, fails).await == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    tasks
}

/// Leases what is due and runs it to its end, in one transaction. Answers how many.
pub(crate) async fn run_due<F: StoreFixture<Store: QuarantineStore>>(
    store: &F::Store,
    consumer: ConsumerId,
    fails: Fails,
) -> usize {
    let mut tx = begin(store).await;
    let lease = ParkLease { consumer, max: 100, lease: Duration::from_secs(3600) };
    let leased = match tx.lease_parked(&lease).await {
        Ok(leased) => leased,
        Err(error) if error.is_retryable() => return 0,
        Err(error) => panic!("{error}"),
    };
    commit(tx).await;
    if leased.is_empty() {
        return 0;
    }
    let mut tx = begin(store).await;
    let (broken, sound): (Vec<&LeasedPark>, Vec<&LeasedPark>) = leased.iter().partition(|one| fails(&one.message));
    let verdict = |one: &LeasedPark| dead(consumer, one.message.clone()).verdict;
    let back: Vec<_> = broken.into_iter().map(|one| PutBack::new(one.receipt, verdict(one))).collect();
    tx.put_back(&back).await.unwrap();
    let owners = sound.iter().filter(|one| one.owns_record).map(|one| dead(consumer, one.message.clone()).key);
    let keys: Vec<(ConsumerId, Key)> = owners.map(|key| (consumer, key)).collect();
    let mut reclaimed = tx.reclaim(&keys).await.unwrap().into_iter();
    for one in &sound {
        let ours = if one.owns_record {
            reclaimed.next().unwrap()
        } else {
            let request = request(&dead(consumer, one.message.clone()));
            match &tx.claim(std::slice::from_ref(&request)).await.unwrap()[0] {
                Claim::Duplicate(earlier) if earlier.is_parked() => {
                    tx.reclaim(&[(consumer, request.key)]).await.unwrap() == [true]
                }
                claim => *claim == Claim::Fresh,
            }
        };
        if ours {
            F::write_effect(tx.db(), one.message.id.as_ref().unwrap().as_str()).await.unwrap();
        }
    }
    let receipts: Vec<_> = sound.iter().map(|one| one.receipt).collect();
    tx.end_parked(&receipts).await.unwrap();
    commit(tx).await;
    leased.len()
}

/// How often each effect is there.
pub(crate) async fn effects<F: StoreFixture>(store: &F::Store) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for id in F::effects(store).await {
        *counts.entry(id).or_default() += 1;
    }
    counts
}

/// Long after every hold and lease of a driver.
pub(crate) async fn let_holds_run_out<F: StoreFixture>(setup: &Setup<F>) {
    setup.advance(DRIVE.lease + Duration::from_secs(1)).await;
}

/// Later than any record that a case makes.
pub(crate) fn far_future() -> oncebox_core::Timestamp {
    oncebox_core::Timestamp::from_second(4_102_444_800).unwrap()
}

/// The audit log as verbs, the oldest first.
pub(crate) async fn verbs<S: QuarantineStore>(admin: &Admin<S>) -> Vec<String> {
    let mut verbs: Vec<String> = admin.audit(None, 1000).await.unwrap().into_iter().map(|entry| entry.verb).collect();
    verbs.reverse();
    verbs
}

/// The time of the setup's clock.
pub(crate) fn now<F: StoreFixture>(setup: &Setup<F>) -> oncebox_core::Timestamp {
    setup.clock.now()
}
