//! Messages that may kill their process, sources that tell little, and answers that are lost while parking.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::{MemoryReceipt, MemorySource};
use oncebox::parked::{Parking, Waiting};
use oncebox::quarantine::Quarantine;
use oncebox::source::SourceCapabilities;
use oncebox::{
    Class, ConsumerName, Context, Delivery, Ended, Key, KeyStrategy, Outcome, Queue, Release, Session, Source,
    SourceError, Store, Template, Transaction,
};
use oncebox_testkit::faults::{Fault, FaultPlan, Faulty, FaultySource};
use oncebox_testkit::store::Setup;

use super::rig::*;

/// A memory source that counts deliveries as it is told, or says that it does not, and knows no coordinates.
#[derive(Clone)]
struct Told {
    source: MemorySource,
    /// 0: it does not count.
    count: u32,
}

impl<S: Store> Source<S> for Told {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        Source::<S>::capabilities(&self.source)
    }
    async fn open(&self, store: &S) -> Result<(), SourceError> {
        self.source.open(store).await
    }
    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<MemoryReceipt>>, SourceError> {
        let mut received = Source::<S>::receive(&self.source, max, wait).await?;
        for delivery in &mut received {
            (delivery.count, delivery.coordinate) = ((self.count > 0).then_some(self.count), None);
            delivery.is_uncounted = self.count == 0;
        }
        Ok(received)
    }
    async fn ack(&self, deliveries: Vec<Delivery<MemoryReceipt>>) -> Result<(), SourceError> {
        Source::<S>::ack(&self.source, deliveries).await
    }
    async fn release(&self, deliveries: Vec<Delivery<MemoryReceipt>>, release: Release) -> Result<(), SourceError> {
        Source::<S>::release(&self.source, deliveries, release).await
    }
    async fn extend(&self, receipts: &[Arc<MemoryReceipt>]) -> Result<(), SourceError> {
        Source::<S>::extend(&self.source, receipts).await
    }
}

/// Notes one more start of a message of consumer `c`, as a process does that dies right after.
async fn start_and_die<F: EngineFixture>(setup: &Setup<F>, id: &str) -> u32 {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let starts = tx.note_start(consumer, &Key::id(id).unwrap(), Waiting::default()).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    starts
}

pub(crate) async fn what_kills_its_process_is_parked_and_its_neighbours_are_not<F: EngineFixture>(setup: Setup<F>) {
    let source = Told { source: MemorySource::new(), count: 3 };
    source.source.send_all(["a", "killer", "b"].map(|text| note(text, text)));
    for _ in 0..5 {
        start_and_die(&setup, "killer").await;
    }
    for _ in 0..4 {
        start_and_die(&setup, "a").await;
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let one = consumer("c", &setup.store, source.clone()).on("noted", move |ctx: Context<F::Store>, note: Note| {
        assert_ne!(note.text, "killer", "it is not tried a sixth time");
        counted.fetch_add(1, SeqCst);
        write::<F>(ctx, note)
    });
    let seen = run_until(one, "all are settled", async |_| source.source.backlog() == 0).await;
    assert_eq!((seen.handled, seen.dead, seen.suspects, calls.load(SeqCst)), (2, 1, 3, 2));
    assert_eq!(effects(&setup).await, ["a", "b"]);
    let dead = only_parked(&setup).await;
    assert_eq!((dead.id.as_str(), dead.state, dead.class), ("killer", DEAD, Some(Class::Permanent)));
    assert_eq!(dead.cause, "permanent/noted/kills-its-process");
    assert!(dead.reason.contains("died 5 times"), "{dead:?}");
    for id in ["a", "b", "killer"] {
        assert_eq!(start_and_die(&setup, id).await, 1, "the starts of {id} are forgotten");
    }
}

pub(crate) async fn what_dies_while_it_only_waits_is_blamed_on_nobody<F: EngineFixture>(setup: Setup<F>) {
    let source = Told { source: MemorySource::new(), count: 30 };
    source.source.send(note("innocent", "innocent"));
    for _ in 0..5 {
        start_and_die(&setup, "innocent").await;
    }
    // As it is left by a process that was killed while it waited.
    let consumer_id = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    assert_eq!(tx.note_wait(consumer_id, &Key::id("innocent").unwrap()).await.unwrap().starts, 5);
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    let one = consumer("c", &setup.store, source.clone()).on("noted", write::<F>);
    let seen = run_until(one, "it is settled", async |_| source.source.backlog() == 0).await;
    assert_eq!((seen.handled, seen.dead), (1, 0));
    assert_eq!(effects(&setup).await, ["innocent"]);
}

pub(crate) async fn a_suspect_runs_alone_after_its_start_is_noted<F: EngineFixture>(setup: Setup<F>) {
    for (count, suspects) in [(2, 0), (3, 4)] {
        let plan = FaultPlan::new();
        let store = Faulty::new(setup.store.clone(), plan.clone());
        let source = Told { source: MemorySource::new(), count };
        source.source.send_all((0..4).map(|n| note(&format!("{count}-{n}"), "a")));
        let one = consumer("c", &store, source.clone()).on(
            "noted",
            |mut ctx: Context<Faulty<F::Store>>, note: Note| async move {
                F::write_effect(ctx.db(), &note.text).await?;
                Ok(Outcome::applied())
            },
        );
        let seen = run_until(one.lanes(4), "all are settled", async |seen| seen.handled == 4).await;
        assert_eq!(
            (seen.suspects, plan.count("note-start"), plan.count("forget-starts")),
            (suspects, suspects as usize, suspects as usize)
        );
        if suspects > 0 {
            let mut made = plan.made();
            made.retain(|call| ["note-wait", "note-start", "commit", "claim", "forget-starts"].contains(call));
            let each = ["note-wait", "commit", "note-start", "commit", "claim", "commit", "forget-starts", "commit"];
            assert_eq!(made, each.repeat(4), "one after another, each noted before it is claimed");
        }
    }
}

/// What comes again and again from a source that does not count is a suspect all the same, once it was left twice without a
/// word: the process died. What is done with is forgotten.
pub(crate) async fn what_its_source_does_not_count_is_counted<F: EngineFixture>(setup: Setup<F>) {
    for (run, dies, suspects) in [(1, true, 0), (2, true, 0), (3, false, 4), (4, false, 0)] {
        let plan = FaultPlan::new();
        if dies {
            // As far as the store can tell.
            plan.decide(|call| (call == "forget-starts").then_some(Fault::BeforeDoing));
        }
        let store = Faulty::new(setup.store.clone(), plan.clone());
        let source = Told { source: MemorySource::new(), count: 0 };
        source.source.send_all((0..4).map(|n| note(&n.to_string(), &n.to_string())));
        let one = consumer("c", &store, source.clone()).on(
            "noted",
            |mut ctx: Context<Faulty<F::Store>>, note: Note| async move {
                F::write_effect(ctx.db(), &note.text).await?;
                Ok(Outcome::applied())
            },
        );
        let settled = async |seen: &oncebox::consumer::Snapshot| source.source.backlog() == 0 && seen.in_hand == 0;
        let seen = run_until(one, "all are settled", settled).await;
        assert_eq!((seen.suspects, seen.dead), (suspects, 0), "run {run}");
    }
    assert_eq!(effects(&setup).await, ["0", "1", "2", "3"]);
}

pub(crate) async fn what_has_no_key_and_no_place_is_parked_once<F: EngineFixture>(setup: Setup<F>) {
    let mut anonymous = note("1", "CANARY");
    anonymous.id = None;
    let mut other = note("1", "CANARY other");
    other.id = None;
    let mut of_tenant = anonymous.clone();
    of_tenant.headers.add("tenant", "b").unwrap();
    let ordered = anonymous.clone().with_order_key("k");
    let source = Told { source: MemorySource::new(), count: 1 };
    source.source.send_all([anonymous.clone(), other, of_tenant, ordered, anonymous]);
    let one = consumer("c", &setup.store, source.clone()).on("noted", write::<F>).lanes(1);
    let settled = async |seen: &oncebox::consumer::Snapshot| source.source.backlog() == 0 && seen.in_hand == 0;
    let seen = run_until(one, "all are settled", settled).await;
    assert_eq!((seen.dead, seen.transport_duplicates, seen.handled), (4, 1, 0), "one of them came twice");
    let parked = F::parked(&setup.store).await;
    assert_eq!(parked.len(), 4);
    assert!(parked.iter().all(|row| row.state == DEAD && !row.reason.contains("CANARY")), "{parked:?}");
}

/// Two messages that say the same are two, wherever their ids tell; and what a message says is not in its key.
pub(crate) async fn what_has_an_id_and_no_key_is_parked_by_its_id<F: EngineFixture>(setup: Setup<F>) {
    let source = Told { source: MemorySource::new(), count: 1 };
    let (one, two) = (note("1", "CANARY"), note("2", "CANARY"));
    let elsewhere = note("1", "CANARY").with_source("another producer");
    source.source.send_all([one.clone(), two, elsewhere, one]);
    let key = KeyStrategy::Template(Template::parse("payment:{payment_id}").unwrap());
    let one = consumer("c", &setup.store, source.clone()).on("noted", write::<F>).key(key).lanes(1);
    let settled = async |seen: &oncebox::consumer::Snapshot| source.source.backlog() == 0 && seen.in_hand == 0;
    let seen = run_until(one, "all are settled", settled).await;
    assert_eq!((seen.dead, seen.transport_duplicates, seen.handled), (3, 1, 0), "one of them came twice");
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let rows = tx.page(consumer, 0, 10).await.unwrap();
    tx.rollback().await;
    assert_eq!(rows.len(), 3);
    let says = |bytes: &[u8]| bytes.windows(6).any(|part| part == b"CANARY");
    assert!(!rows.iter().any(|row| says(row.key.as_bytes())), "keys are shown");
}

/// The acknowledgement of what was parked is lost: it comes again, and is neither parked nor run a second time.
pub(crate) async fn what_was_parked_and_not_acknowledged_is_applied_once<F: EngineFixture>(setup: Setup<F>) {
    let lease = Duration::from_secs(30);
    let source = MemorySource::with_clock(setup.clock.clone(), lease);
    let mut unreadable = note("3", "CANARY");
    unreadable.id = None;
    source.send_all([note("1", "a"), note("2", "dead"), unreadable]);
    let start = |plan: FaultPlan| {
        let fails = move |n: usize, note: &Note| match note.text.as_str() {
            "dead" => Some(oncebox::Failure::permanent("the case said so")),
            _ => (n == 1).then(|| refuse().retry_after(lease)),
        };
        let calls = Arc::default();
        consumer("c", &setup.store, FaultySource::new(source.clone(), plan))
            .on("noted", super::parking::failing::<F>(&calls, fails))
            .lanes(1)
            .bounds(|bounds| bounds.batch_messages_max = 1)
    };
    let plan = FaultPlan::new();
    plan.decide(|call| (call == "ack").then_some(Fault::Lost));
    let all_parked = async |seen: &oncebox::consumer::Snapshot| seen.parked == 1 && seen.dead == 2 && seen.in_hand == 0;
    run_until(start(plan), "all are parked", all_parked).await;
    assert_eq!((source.backlog(), F::parked(&setup.store).await.len()), (3, 3));
    setup.advance(lease).await;
    source.wake();
    let calm = async |seen: &oncebox::consumer::Snapshot| source.backlog() == 0 && seen.handled == 1;
    // Its first call of this run: it fails no more, because the second run counts anew.
    let plan = FaultPlan::new();
    let again = consumer("c", &setup.store, FaultySource::new(source.clone(), plan)).on("noted", write::<F>);
    let seen = run_until(again, "all came again", calm).await;
    assert_eq!((seen.handled, seen.dead, seen.parked), (1, 0, 0));
    assert_eq!(effects(&setup).await, ["a"]);
    assert_eq!(F::parked(&setup.store).await.len(), 2, "the dead ones, once each");
}

/// Answers of commits are lost while messages are parked and put back, on a queue that is settled in those commits.
pub(crate) async fn unknown_commits_while_parking_lose_and_double_nothing<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::new();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let queue = Queue::new(store.clone(), "notes").unwrap();
    queue.send((0..12).map(|n| note(&n.to_string(), &format!("{n:02}")))).await.unwrap();
    let mut dice = 0_u32;
    let mut parks = false;
    plan.decide(move |call| {
        parks = match call {
            "park" | "put-back" => true,
            "commit" => {
                let fault = [Some(Fault::AfterDoing), Some(Fault::Lost), None, Some(Fault::BeforeDoing)];
                dice += u32::from(parks);
                let now = parks;
                parks = false;
                return if now { fault[(dice % 4) as usize] } else { None };
            }
            _ => parks,
        };
        None
    });
    let tries: Arc<std::sync::Mutex<std::collections::HashMap<String, u32>>> = Arc::default();
    let flaky = consumer("c", &store, queue)
        .on("noted", move |mut ctx: Context<Faulty<F::Store>>, note: Note| {
            let tries = Arc::clone(&tries);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                let n = {
                    let mut tries = tries.lock().unwrap();
                    let n = tries.entry(note.text).or_default();
                    *n += 1;
                    *n
                };
                if n < 5 { Err(refuse()) } else { Ok(Outcome::applied()) }
            }
        })
        .lanes(2)
        .bounds(|bounds| bounds.breaker_sample = 0);
    let done = async |seen: &oncebox::consumer::Snapshot| seen.handled == 12 && seen.in_hand == 0;
    in_real_time(&setup.clock, run_until(flaky, "all are applied", done)).await;
    assert_eq!(effects(&setup).await, (0..12).map(|n| format!("{n:02}")).collect::<Vec<_>>());
    assert!(F::parked(&setup.store).await.is_empty());
}
