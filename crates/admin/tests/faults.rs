//! A replay in which each call to the store fails in turn: whatever fails, each message is applied once, and what the
//! replay counted is what happened.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::sync::Arc;
use std::time::Duration;

use oncebox_admin::{Actor, Admin, DriveOptions, Error, Filter, ReplayOptions, ReplayView};
use oncebox_core::memory::MemoryStore;
use oncebox_core::parked::{Cause, Park, ParkLease, Parking, Verdict, Waits};
use oncebox_core::replay::ReplayState;
use oncebox_core::{
    ClaimRequest, Class, ConsumerId, ConsumerName, Ended, Fingerprinter, Inbox, Key, Message, MessageId, Outcome,
    OutcomeKind, Session, Store, Transaction,
};
use oncebox_testkit::faults::{FaultPlan, Faulty, fail_at_each_call_in_turn};

const MESSAGES: usize = 6;

async fn begin(store: &MemoryStore) -> <MemoryStore as Store>::Tx {
    store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap()
}

async fn commit(tx: impl Transaction) {
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

fn key(n: usize) -> Key {
    Key::id(&format!("m{n}")).unwrap()
}

async fn dead_letters(store: &MemoryStore) -> ConsumerId {
    let consumer = store.consumer(&ConsumerName::new("invoices").unwrap()).await.unwrap();
    let mut tx = begin(store).await;
    for n in 0..MESSAGES {
        let message = Message::new("paid").with_id(MessageId::new(format!("m{n}")).unwrap());
        let fingerprint = Fingerprinter::default().fingerprint(&message);
        tx.claim(&[ClaimRequest { consumer, key: key(n), fingerprint, id_hash: None }]).await.unwrap();
        tx.record(&[(consumer, key(n), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
        let class = Some(Class::Permanent);
        let cause = Cause::new(class, "paid", "closed");
        let verdict = Verdict { waits: Waits::Person, class, cause, reason: "closed".to_owned(), attempts: 1 };
        let message = Arc::new(message);
        let (key, order_key) = (key(n), None);
        tx.park(&[Park { consumer, message, key, fingerprint, owns_record: true, order_key, verdict }]).await.unwrap();
    }
    commit(tx).await;
    consumer
}

/// Applies what is due. On the store itself: it is the operators' calls that fail here.
async fn apply_due(store: &MemoryStore, consumer: ConsumerId) {
    let mut tx = begin(store).await;
    let lease = ParkLease { consumer, max: 100, lease: Duration::from_secs(60) };
    for leased in tx.lease_parked(&lease).await.unwrap() {
        let id = leased.message.id.as_ref().unwrap().as_str().to_owned();
        assert_eq!(tx.reclaim(&[(consumer, Key::id(&id).unwrap())]).await.unwrap(), [true]);
        // Unique: applied twice, it fails.
        tx.db().insert("applied", &id, &()).unwrap();
        tx.end_parked(&[leased.receipt]).await.unwrap();
    }
    commit(tx).await;
}

/// Tries again what an operator would.
macro_rules! until_done {
    ($attempt:expr) => {
        loop {
            match $attempt.await {
                Ok(done) => break done,
                Err(error) => assert!(Error::from(error).is_retryable()),
            }
        }
    };
}

async fn replay(plan: FaultPlan) {
    let store = MemoryStore::new();
    let consumer = dead_letters(&store).await;
    let admin = Admin::new(Faulty::new(store.clone(), plan));
    let ada = Actor::new("ada", "a test").unwrap();
    let options = ReplayOptions { canary: 2, rate: None, in_flight_max: 3, stop_permille: 0, force: false };
    let drive = DriveOptions { lease: Duration::from_millis(20), poll: Duration::from_millis(1), batch: 2 };
    let meant = until_done!(admin.meant("invoices", Filter::all()));
    let id = loop {
        match admin.start_replay(&meant, &options, &ada).await {
            Ok(started) => break started.id,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        // Whether it was stored is not known: look, as the error says.
        if let Some(found) = until_done!(admin.list_replays(None, 1)).pop() {
            break found.id;
        }
    };
    let runner = async {
        loop {
            apply_due(&store, consumer).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let driver = async { until_done!(admin.drive(id, &ada, &drive)) };
    let end: ReplayView = tokio::select! {
        end = driver => end,
        () = runner => return,
    };
    assert_eq!(end.state, ReplayState::Done, "{end:?}");
    assert_eq!((end.revived, end.done, end.failed, end.moving), (MESSAGES as u64, MESSAGES as u64, 0, 0), "{end:?}");
    let applied: Vec<()> = store.with_db(|db| db.rows("applied")).await.unwrap();
    assert_eq!(applied.len(), MESSAGES);
    let verbs = until_done!(admin.audit(None, 10));
    assert_eq!(verbs.iter().filter(|entry| entry.verb == "replay.done").count(), 1, "{verbs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_call_fails_each_message_is_applied_once() {
    let made = fail_at_each_call_in_turn(replay).await;
    for call in ["hold-replay", "on-their-way", "revive", "save-replay", "let-go-replay", "audit", "commit"] {
        assert!(made.contains(&call), "{call} was never made: {made:?}");
    }
}
