//! A faulty store with a calm plan is the store inside; with another, it fails as the plan says and no other way.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::memory::{MemoryDb, MemorySource, MemoryStore};
use oncebox_core::{
    Claim, ClaimRequest, ConsumerName, Ended, Failure, Fingerprint, Inbox, Key, Message, Session, Source, Store,
    StoreError, StoreErrorKind, Transaction,
};
use oncebox_testkit::ManualClock;
use oncebox_testkit::faults::{
    Fault, FaultPlan, Faulty, FaultySource, Moment, fail_at_each_call_in_turn, repeat_every_call,
};
use oncebox_testkit::source::SourceFixture;
use oncebox_testkit::store::StoreFixture;

type Shop = Faulty<MemoryStore>;

struct Calm;

impl StoreFixture for Calm {
    type Store = Shop;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<Shop> {
        Some(Faulty::new(MemoryStore::with_clock(clock), FaultPlan::new()))
    }

    async fn write_effect(db: &mut MemoryDb, id: &str) -> Result<(), Failure> {
        Ok(db.append("effects", &id)?)
    }

    async fn effects(store: &Shop) -> Vec<String> {
        store.inner().with_db(|db| db.rows("effects")).await.expect("the table can be read")
    }

    async fn insert_unique(db: &mut MemoryDb, key: &str) -> Result<(), Failure> {
        Ok(db.insert("unique", key, &())?)
    }

    async fn swallow_error(db: &mut MemoryDb) {
        let _ = db.insert("unique", "twice", &());
        let _ = db.insert("unique", "twice", &());
    }
}

impl SourceFixture for Calm {
    type Store = Shop;
    type Source = FaultySource<MemorySource>;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<(Shop, FaultySource<MemorySource>)> {
        let source = MemorySource::with_clock(clock.clone(), MemorySource::LEASE);
        let store = Faulty::new(MemoryStore::with_clock(clock), FaultPlan::new());
        Some((store, FaultySource::new(source, FaultPlan::new())))
    }

    async fn send(&self, _store: &Shop, source: &FaultySource<MemorySource>, messages: Vec<Message>) {
        source.inner().send_all(messages);
    }
}

oncebox_testkit::store_suite!(Calm);
oncebox_testkit::source_suite!(Calm);

fn shop(plan: &FaultPlan) -> Shop {
    Faulty::new(MemoryStore::new(), plan.clone())
}

async fn begin(store: &Shop) -> Result<<Shop as Store>::Tx, StoreError> {
    store.connect().await?.begin(Duration::from_secs(10)).await
}

async fn order(store: &Shop) -> Result<ClaimRequest, StoreError> {
    let consumer = store.consumer(&ConsumerName::new("billing").expect("a sound name")).await?;
    let key = Key::id("order-1").expect("a sound id");
    Ok(ClaimRequest { consumer, key, fingerprint: Fingerprint::from_stored(1, 1), id_hash: None })
}

/// Claims, writes and leaves the commit to the test.
async fn handle(store: &Shop, request: &ClaimRequest) -> Result<(Claim, <Shop as Store>::Tx), StoreError> {
    let mut tx = begin(store).await?;
    let claim = tx.claim(std::slice::from_ref(request)).await?.remove(0);
    if claim == Claim::Fresh {
        tx.db().append("effects", &"paid").expect("an effect can be written");
    }
    Ok((claim, tx))
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_durable_and_unknown() {
    let plan = FaultPlan::new();
    let store = shop(&plan);
    let request = order(&store).await.unwrap();
    plan.fail("commit", Fault::AfterDoing, 1);
    let (_, tx) = handle(&store, &request).await.unwrap();
    let Ended::Unknown { doubt, .. } = tx.commit().await else { panic!("the answer should be lost") };
    store.resolve(&doubt).await.unwrap();
    assert!(matches!(handle(&store, &request).await.unwrap().0, Claim::Duplicate(_)));
    assert_eq!(Calm::effects(&store).await, ["paid"]);
}

#[tokio::test]
async fn a_commit_that_is_lost_is_rolled_back_and_unknown() {
    let plan = FaultPlan::new();
    let store = shop(&plan);
    let request = order(&store).await.unwrap();
    plan.fail("commit", Fault::Lost, 1);
    let (_, tx) = handle(&store, &request).await.unwrap();
    let Ended::Unknown { doubt, .. } = tx.commit().await else { panic!("nobody should know") };
    store.resolve(&doubt).await.unwrap();
    assert_eq!(handle(&store, &request).await.unwrap().0, Claim::Fresh);
}

#[tokio::test]
async fn a_commit_that_fails_before_it_is_sent_is_certainly_rolled_back() {
    let plan = FaultPlan::new();
    let store = shop(&plan);
    let request = order(&store).await.unwrap();
    for (fault, kind) in
        [(Fault::BeforeDoing, StoreErrorKind::Unavailable), (Fault::Contended, StoreErrorKind::Contended)]
    {
        plan.fail("commit", fault, 1);
        let (claim, tx) = handle(&store, &request).await.unwrap();
        assert_eq!(claim, Claim::Fresh);
        let Ended::RolledBack { error, .. } = tx.commit().await else { panic!("it should be rolled back") };
        assert_eq!(error.kind(), kind);
    }
    assert!(Calm::effects(&store).await.is_empty());
}

#[tokio::test]
async fn a_transaction_on_which_a_call_failed_cannot_commit() {
    for fault in [Fault::BeforeDoing, Fault::AfterDoing, Fault::Contended] {
        let plan = FaultPlan::new();
        let store = shop(&plan);
        let request = order(&store).await.unwrap();
        let mut tx = begin(&store).await.unwrap();
        plan.fail("claim", fault, 1);
        tx.claim(std::slice::from_ref(&request)).await.unwrap_err();
        assert_eq!(tx.alive().unwrap_err().kind(), StoreErrorKind::TransactionLost);
        assert_eq!(tx.record(&[]).await.unwrap_err().kind(), StoreErrorKind::TransactionLost);
        assert!(matches!(tx.commit().await, Ended::RolledBack { .. }));
        assert_eq!(handle(&store, &request).await.unwrap().0, Claim::Fresh);
    }
}

#[tokio::test]
async fn a_lost_acknowledgement_makes_a_redelivery() {
    let clock = Arc::new(ManualClock::new());
    let plan = FaultPlan::new();
    let source = FaultySource::new(MemorySource::with_clock(clock.clone(), MemorySource::LEASE), plan.clone());
    source.inner().send(Message::new("order.placed"));
    plan.fail("ack", Fault::Lost, 1);
    for count in 1..=2 {
        let got = Source::<MemoryStore>::receive(&source, 1, Duration::ZERO).await.unwrap();
        assert_eq!(got[0].count, Some(count));
        Source::<MemoryStore>::ack(&source, got).await.unwrap();
        clock.advance(MemorySource::LEASE * 2);
    }
    assert_eq!(source.inner().backlog(), 0);
}

/// What an engine does with one message: again and again until it knows that the message is handled.
async fn process(store: &Shop, trusts_unknown: bool) {
    for _ in 0..20 {
        let attempt = async {
            let request = order(store).await?;
            let (claim, tx) = handle(store, &request).await?;
            match (claim, tx.commit().await) {
                (Claim::Fresh | Claim::Duplicate(_), Ended::Committed(_)) => Ok(true),
                (_, Ended::Unknown { .. }) if trusts_unknown => Ok(true),
                (_, Ended::Unknown { doubt, .. }) => {
                    while store.resolve(&doubt).await.is_err() {}
                    Ok(false)
                }
                (_, Ended::RolledBack { error, .. }) => Err(error),
                (claim, _) => panic!("unexpected: {claim:?}"),
            }
        };
        if attempt.await.is_ok_and(|done: bool| done) {
            return;
        }
    }
    panic!("the message was not handled after 20 attempts");
}

#[tokio::test]
async fn a_sound_scenario_survives_a_fault_at_every_call_and_every_call_twice() {
    let scenario = |plan: FaultPlan| async move {
        let store = shop(&plan);
        process(&store, false).await;
        process(&store, false).await;
        assert_eq!(Calm::effects(&store).await, ["paid"]);
    };
    let once = ["consumer", "connect", "begin", "claim", "commit"];
    assert_eq!(fail_at_each_call_in_turn(scenario).await, [once, once].concat());
    repeat_every_call(scenario).await;
}

#[tokio::test]
#[should_panic(expected = "with Lost at `commit`, call 5 of 5")]
async fn an_unsound_scenario_is_found_out_and_the_call_is_named() {
    fail_at_each_call_in_turn(|plan| async move {
        let store = shop(&plan);
        process(&store, true).await;
        assert_eq!(Calm::effects(&store).await, ["paid"]);
    })
    .await;
}

#[tokio::test]
async fn a_message_takes_effect_once_whatever_the_dice_say() {
    for seed in 0..200 {
        let plan = FaultPlan::new();
        plan.random(seed, 0.2, &["connect", "begin", "claim", "commit", "resolve", "consumer"]);
        let store = shop(&plan);
        process(&store, false).await;
        assert_eq!(Calm::effects(&store).await, ["paid"], "with seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_commit_is_resolved_when_it_has_happened() {
    let plan = FaultPlan::new();
    let store = shop(&plan);
    let request = order(&store).await.expect("a calm plan");
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let watched = Arc::clone(&seen);
    plan.watch(move |moment| watched.lock().expect("nobody panicked").push(moment));
    plan.decide(|call| (call == "commit").then_some(Fault::Late(Duration::from_secs(3))));
    let (_, tx) = handle(&store, &request).await.expect("only commits go wrong");
    let started = tokio::time::Instant::now();
    let Ended::Unknown { doubt, .. } = tx.commit().await else { panic!("its answer is lost") };
    assert_eq!((started.elapsed(), seen.lock().expect("nobody panicked").len()), (Duration::ZERO, 1));
    store.resolve(&doubt).await.expect("a resolve that goes well");
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert_eq!(*seen.lock().expect("nobody panicked"), [Moment::Begun, Moment::Committed]);
    assert_eq!(Calm::effects(&store).await, ["paid"]);
}
