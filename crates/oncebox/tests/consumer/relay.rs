//! What handlers emit, and the relay that publishes it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::consumer::{RunError, StartError};
use oncebox::memory::{MemorySink, MemorySource};
use oncebox::outbox::Outbox;
use oncebox::queue::QueueStore;
use oncebox::relay::{RelayError, RelaySnapshot, RelayStats};
use oncebox::sink::SinkCapabilities;
use oncebox::{
    Context, Ended, Event, Failure, Guarantee, Message, MessageId, OrderBy, Outcome, Outgoing, Relay, Session, Sink,
    SinkError, SinkErrorKind, Store, Transaction,
};
use oncebox_testkit::faults::{Fault, FaultPlan, Faulty};
use oncebox_testkit::store::Setup;
use oncebox_testkit::{DEADLINE, eventually};

use super::rig::*;

/// Runs a relay until `done` answers true.
async fn relay_until<S: QueueStore>(
    relay: Relay<S, MemorySink>,
    awaited: &str,
    mut done: impl AsyncFnMut(&RelaySnapshot) -> bool,
) -> RelaySnapshot {
    let stats = relay.stats();
    relay.run(eventually(awaited, async || done(&stats.snapshot()).await)).await.unwrap();
    stats.snapshot()
}

pub(super) fn outgoing(topic: &str, key: Option<&str>, text: &str) -> Outgoing {
    let mut message = Message::new("noted").with_payload(text.to_owned());
    message.order_key = key.map(str::to_owned);
    Outgoing { topic: topic.to_owned(), message: Arc::new(message) }
}

pub(super) async fn emit<S: QueueStore>(store: &S, rows: &[Outgoing]) {
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    tx.emit(rows).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

pub(super) fn texts(published: &[Outgoing]) -> Vec<String> {
    published.iter().map(|out| String::from_utf8(out.message.payload.to_vec()).unwrap()).collect()
}

/// The numbers of texts like `key:number`, by key, each where it was first published.
fn first_by_key(published: &[Outgoing]) -> BTreeMap<String, Vec<u32>> {
    let mut seen = HashSet::new();
    let mut by_key: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for text in texts(published) {
        let (key, number) = text.split_once(':').unwrap();
        if seen.insert(text.clone()) {
            by_key.entry(key.to_owned()).or_default().push(number.parse().unwrap());
        }
    }
    by_key
}

pub(crate) async fn what_a_handler_emits_is_published_with_its_commit<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    for n in 0..40 {
        let mut message = note(&n.to_string(), &if n % 10 == 3 { format!("bad-{n}") } else { format!("good-{n}") });
        message.headers.add("traceparent", "00-aa-bb-01").unwrap();
        // Each comes twice.
        source.send_all([message.clone(), message]);
    }
    let sink = MemorySink::new();
    let one =
        consumer("c", &setup.store, source.clone()).on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            F::write_effect(ctx.db(), &note.text).await?;
            ctx.emit(Event::new("happened").topic("news").key(note.text.clone()).json(&note)?);
            if note.text.starts_with("bad") { Err(Failure::permanent("it is bad")) } else { Ok(Outcome::applied()) }
        });
    let relay = Relay::new(setup.store.clone(), sink.clone());
    let stats = relay.stats();
    let (seen, _) = tokio::join!(
        run_until(one, "all are settled", async |seen| source.backlog() == 0 && seen.in_hand == 0),
        relay.run(eventually("all good ones are published", async || stats.snapshot().published == 36)),
    );
    assert_eq!((seen.handled, seen.dead), (36, 4));
    let published = sink.take();
    let ids: HashSet<&MessageId> = published.iter().filter_map(|out| out.message.id.as_ref()).collect();
    assert_eq!((published.len(), ids.len()), (36, 36));
    for out in &published {
        assert_eq!((out.topic.as_str(), out.message.kind.as_str()), ("news", "happened"));
        assert_eq!(out.message.headers.get("traceparent"), Some("00-aa-bb-01"));
        assert!(out.message.order_key.as_ref().is_some_and(|key| key.starts_with("good")));
    }
    assert_eq!(effects(&setup).await.len(), 36);
}

pub(crate) async fn an_event_without_an_id_of_its_own_needs_a_claim<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "none"), note("2", "own")]);
    let one = consumer("c", &setup.store, source.clone()).on_idempotent(
        "noted",
        |mut ctx: Context<F::Store>, note: Note| async move {
            let event = Event::new("happened");
            ctx.emit(if note.text == "own" { event.id(MessageId::new("mine")?) } else { event });
            Ok(Outcome::applied())
        },
    );
    let seen = run_until(one, "both are settled", async |seen| source.backlog() == 0 && seen.in_hand == 0).await;
    assert_eq!((seen.handled, seen.dead), (1, 1));
    assert!(only_parked(&setup).await.reason.contains("id of its own"));
    let sink = MemorySink::new();
    relay_until(Relay::new(setup.store.clone(), sink.clone()), "one is published", async |seen| seen.published == 1)
        .await;
    assert_eq!(sink.take()[0].message.id, Some(MessageId::new("mine").unwrap()));
}

pub(crate) async fn two_relays_share_an_outbox_and_keep_order<F: EngineFixture>(setup: Setup<F>) {
    let sink = MemorySink::new();
    let feed = async {
        for n in 0..100 {
            let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let rows: Vec<Outgoing> = keys.iter().map(|key| outgoing("t", Some(key), &format!("{key}:{n}"))).collect();
            emit(&setup.store, &rows).await;
        }
    };
    let done = || eventually("all are published", async || sink.len() >= 800);
    let relay = || Relay::new(setup.store.clone(), sink.clone()).bounds(|bounds| bounds.batch_messages_max = 7);
    let work = async { tokio::join!(feed, relay().run(done()), relay().run(done())) };
    let (_, one, two) = in_real_time(&setup.clock, work).await;
    one.unwrap();
    two.unwrap();
    let by_key = first_by_key(&sink.take());
    assert_eq!(by_key.len(), 8);
    for (key, numbers) in by_key {
        assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "order of {key}");
    }
}

pub(crate) async fn a_row_that_commits_late_is_published<F: EngineFixture>(setup: Setup<F>) {
    if !setup.store.capabilities().concurrent {
        return;
    }
    let mut late = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    late.emit(&[outgoing("t", Some("k"), "late")]).await.unwrap();
    emit(&setup.store, &[outgoing("t", Some("k"), "early"), outgoing("t", None, "free")]).await;
    let sink = MemorySink::new();
    let relay = Relay::new(setup.store.clone(), sink.clone());
    let stats = relay.stats();
    let commit = async {
        eventually("the early ones are published", async || stats.snapshot().published == 2).await;
        assert!(matches!(late.commit().await, Ended::Committed(_)));
    };
    let done = eventually("the late one is published", async || stats.snapshot().published == 3);
    tokio::join!(commit, relay.run(done)).1.unwrap();
    let mut said = texts(&sink.take());
    said[..2].sort_unstable();
    assert_eq!(said, ["early", "free", "late"]);
}

pub(crate) async fn a_sink_that_is_away_costs_nothing_but_time<F: EngineFixture>(setup: Setup<F>) {
    let rows: Vec<Outgoing> = (0..50).map(|n| outgoing("t", Some("k"), &format!("k:{n}"))).collect();
    emit(&setup.store, &rows).await;
    let sink = MemorySink::new();
    sink.set_away(true);
    let relay = Relay::new(setup.store.clone(), sink.clone());
    let stats = relay.stats();
    let back = async {
        eventually("it was tried twice", async || stats.snapshot().failed >= 2).await;
        let seen = stats.snapshot();
        assert!(seen.waiting_for.is_some_and(|what| what.contains("away")) && seen.published == 0);
        sink.set_away(false);
    };
    let done = eventually("all are published", async || stats.snapshot().published >= 50);
    tokio::join!(back, relay.run(done)).1.unwrap();
    assert_eq!(first_by_key(&sink.take())["k"], (0..50).collect::<Vec<_>>());
    assert_eq!(stats.snapshot().waiting_for, None);
}

pub(crate) async fn what_a_sink_refuses_holds_up_only_its_own_key<F: EngineFixture>(setup: Setup<F>) {
    let large = "x".repeat(200);
    let rows = [
        outgoing("t", Some("a"), "a:1"),
        outgoing("t", Some("a"), &large),
        outgoing("t", Some("a"), "a:3"),
        outgoing("u", Some("a"), "u:1"),
        outgoing("t", Some("b"), "b:1"),
        outgoing("missing", Some("m"), "m:1"),
    ];
    emit(&setup.store, &rows).await;
    let sink = MemorySink::new().with_payload_bytes_max(100);
    sink.set_missing("missing", true);
    let relay = || Relay::new(setup.store.clone(), sink.clone());
    let seen =
        relay_until(relay(), "the rest is published", async |seen| seen.published == 3 && seen.set_aside == 1).await;
    assert!(seen.failed >= 1);
    let mut said = texts(&sink.take());
    said.sort_unstable();
    assert_eq!(said, ["a:1", "b:1", "u:1"]);

    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let aside = tx.page_aside(0, 10).await.unwrap();
    assert_eq!((aside.len(), aside[0].topic.as_str()), (1, "t"));
    assert!(aside[0].reason.contains("100 are allowed") && !aside[0].reason.contains("xxx"), "{}", aside[0].reason);
    assert_eq!(tx.skip_aside(&[aside[0].row]).await.unwrap(), [true]);
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    sink.set_missing("missing", false);
    relay_until(relay(), "what waited is published", async |seen| seen.published == 2).await;
    let mut said = texts(&sink.take());
    said.sort_unstable();
    assert_eq!(said, ["a:3", "m:1"]);
}

pub(crate) async fn a_relay_that_dies_is_taken_over<F: EngineFixture>(setup: Setup<F>) {
    let sink = MemorySink::new();
    let relay = || {
        Relay::new(setup.store.clone(), sink.clone()).bounds(|bounds| {
            bounds.lease = Duration::from_millis(400);
            bounds.batch_messages_max = 3;
        })
    };
    let work = async {
        let (first, second) = (relay(), relay());
        let mut dying = tokio::task::JoinSet::new();
        dying.spawn(first.run(std::future::pending()));
        emit(&setup.store, &[outgoing("t", None, "a")]).await;
        eventually("the first one publishes", async || sink.len() == 1).await;
        dying.shutdown().await;
        let rows: Vec<Outgoing> = (0..40).map(|n| outgoing("t", Some(&n.to_string()), &format!("k:{n}"))).collect();
        emit(&setup.store, &rows).await;
        // What the first one published it may not have noted as sent; then it is published again.
        let said = Mutex::new(BTreeSet::new());
        let everything = eventually("the second one has everything", async || {
            said.lock().unwrap().extend(texts(&sink.take()));
            said.lock().unwrap().len() == 41
        });
        second.run(everything).await.unwrap();
    };
    in_real_time(&setup.clock, work).await;
}

pub(crate) async fn random_faults_in_a_relay_lose_and_invert_nothing<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    for n in 0..60 {
        let rows: Vec<Outgoing> =
            ["a", "b", "c"].iter().map(|key| outgoing("t", Some(key), &format!("{key}:{n}"))).collect();
        emit(&setup.store, &rows).await;
    }
    plan.random(
        11,
        0.15,
        &["connect", "begin", "fetch-unsent", "end-sent", "hold-lanes", "commit", "rollback", "resolve"],
    );
    let sink = MemorySink::new();
    let relay = Relay::new(store, sink.clone()).bounds(|bounds| {
        bounds.batch_messages_max = 5;
        bounds.lease = Duration::from_millis(500);
    });
    let mut all = Vec::new();
    let done = eventually("everything is published", async || {
        all.extend(sink.take());
        first_by_key(&all).values().map(Vec::len).sum::<usize>() == 180
    });
    in_real_time(&setup.clock, relay.run(done)).await.unwrap();
    for (key, numbers) in first_by_key(&all) {
        assert_eq!(numbers, (0..60).collect::<Vec<_>>(), "order of {key}");
    }
}

/// Of each batch it takes all rows but every seventh that it is ever given, which it takes the next time.
struct Gaps {
    inner: MemorySink,
    given: std::sync::Mutex<HashSet<String>>,
}

impl Sink for Gaps {
    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities::none("gaps")
    }

    async fn open(&self) -> Result<(), SinkError> {
        self.inner.open().await
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        // Long enough for the next batch to be fetched meanwhile.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut answers = Vec::new();
        for row in batch {
            let is_gap = {
                let mut given = self.given.lock().unwrap();
                given.insert(texts(std::slice::from_ref(row)).remove(0)) && given.len().is_multiple_of(7)
            };
            answers.push(if is_gap {
                Err(SinkError::new(SinkErrorKind::Unavailable, "publish", "this one is a gap"))
            } else {
                self.inner.publish(std::slice::from_ref(row)).await.remove(0)
            });
        }
        answers
    }
}

pub(crate) async fn what_was_fetched_ahead_does_not_overtake_what_failed<F: EngineFixture>(setup: Setup<F>) {
    for n in 0..40 {
        let keys = ["a", "b", "c", "d"];
        let rows: Vec<Outgoing> = keys.iter().map(|key| outgoing("t", Some(key), &format!("{key}:{n}"))).collect();
        emit(&setup.store, &rows).await;
    }
    let sink = MemorySink::new();
    let relay = Relay::new(setup.store.clone(), Gaps { inner: sink.clone(), given: Default::default() });
    let relay = relay.bounds(|bounds| {
        bounds.batch_messages_max = 4;
        bounds.workers = 1;
        bounds.pause = (Duration::from_millis(1), Duration::from_millis(1));
    });
    let stats = relay.stats();
    let done = eventually("all are published", async || stats.snapshot().published >= 160);
    in_real_time(&setup.clock, relay.run(done)).await.unwrap();
    assert!(stats.snapshot().failed >= 10, "{:?}", stats.snapshot());
    let published = sink.take();
    assert_eq!(published.len(), 160, "nothing was published twice");
    for (key, numbers) in first_by_key(&published) {
        assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "order of {key}");
    }
}

pub(crate) async fn an_idle_relay_commits_nothing_but_its_leases<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let relay = Relay::new(Faulty::new(setup.store.clone(), plan.clone()), MemorySink::new());
    let done = eventually("it has looked often", async || plan.count("fetch-unsent") >= 10);
    in_real_time(&setup.clock, relay.run(done)).await.unwrap();
    let leases = plan.count("hold-lanes") + plan.count("leave-lanes");
    let looks = plan.count("fetch-unsent");
    assert!(plan.count("commit") <= leases + 1, "{} commits, {leases} leases, {looks} looks", plan.count("commit"));
}

pub(crate) async fn what_was_rolled_back_is_never_published<F: EngineFixture>(setup: Setup<F>) {
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    tx.emit(&[outgoing("t", None, "never")]).await.unwrap();
    tx.rollback().await;
    emit(&setup.store, &[outgoing("t", None, "published")]).await;
    let sink = MemorySink::new();
    relay_until(Relay::new(setup.store.clone(), sink.clone()), "one is published", async |seen| seen.published == 1)
        .await;
    assert_eq!(texts(&sink.take()), ["published"]);
}

/// Waiting would not mend it, so the relay ends, with the reason and what to do; whatever it was doing then. What it had
/// published and could not note is published again by the next one, and nothing is lost.
pub(crate) async fn a_relay_whose_store_needs_a_person_ends_and_says_why<F: EngineFixture>(setup: Setup<F>) {
    for (round, call) in ["fetch-unsent", "end-sent", "hold-lanes"].into_iter().enumerate() {
        let rows: Vec<Outgoing> = (0..20).map(|n| outgoing("t", Some("k"), &format!("{round}:{n}"))).collect();
        emit(&setup.store, &rows).await;
        let (plan, sink) = (FaultPlan::default(), MemorySink::new());
        let relay = || {
            Relay::new(Faulty::new(setup.store.clone(), plan.clone()), sink.clone()).bounds(|bounds| {
                bounds.lease = Duration::from_millis(400);
                bounds.batch_messages_max = 5;
            })
        };
        plan.fail(call, Fault::Misconfigured, usize::MAX);
        let running = tokio::time::timeout(DEADLINE, relay().run(std::future::pending()));
        let ended = in_real_time(&setup.clock, running).await.expect("the relay ends by itself").unwrap_err();
        assert!(matches!(ended, RelayError::Stopped(_)), "{call}: {ended}");
        let said = ended.to_string();
        assert!(
            said.contains("a test took the table away; give it back") && said.contains("start the relay"),
            "{said}"
        );
        plan.calm();
        let mut all = Vec::new();
        let done = eventually("the next one publishes everything", async || {
            all.extend(sink.take());
            first_by_key(&all).get(&round.to_string()).is_some_and(|numbers| numbers.len() == 20)
        });
        in_real_time(&setup.clock, relay().run(done)).await.unwrap();
        assert_eq!(first_by_key(&all)[&round.to_string()], (0..20).collect::<Vec<_>>(), "{call}");
    }
}

/// The same errors, if they pass by themselves, end nothing.
pub(crate) async fn a_relay_waits_for_a_store_that_comes_back<F: EngineFixture>(setup: Setup<F>) {
    let (plan, sink) = (FaultPlan::default(), MemorySink::new());
    let rows: Vec<Outgoing> = (0..20).map(|n| outgoing("t", Some("k"), &format!("k:{n}"))).collect();
    emit(&setup.store, &rows).await;
    for call in ["fetch-unsent", "end-sent", "hold-lanes"] {
        plan.fail(call, Fault::BeforeDoing, 2);
        plan.fail(call, Fault::Contended, 1);
    }
    let relay = Relay::new(Faulty::new(setup.store.clone(), plan), sink.clone())
        .bounds(|bounds| bounds.lease = Duration::from_millis(400));
    let mut all = Vec::new();
    let done = eventually("all are published", async || {
        all.extend(sink.take());
        first_by_key(&all).get("k").is_some_and(|numbers| numbers.len() == 20)
    });
    in_real_time(&setup.clock, relay.run(done)).await.unwrap();
}

/// A second relay gets its half while the first goes on with the other, and nothing waits for a lease to end.
pub(crate) async fn a_relay_gives_back_lanes_when_another_joins<F: EngineFixture>(setup: Setup<F>) {
    let sink = MemorySink::new();
    // So long that nobody gets a lane by waiting for its end.
    let relay = || Relay::new(setup.store.clone(), sink.clone()).bounds(|b| b.lease = Duration::from_secs(4));
    let (first, second) = (relay(), relay());
    let (one, two) = (first.stats(), second.stats());
    let lanes = |stats: &RelayStats| stats.snapshot().lanes;
    let all = usize::from(oncebox::outbox::LANES);
    let work = async {
        let first_is_alone = eventually("the first one has all", async || lanes(&one) == all);
        let joined = async {
            first_is_alone.await;
            let half = eventually("each has half", async || (lanes(&one), lanes(&two)) == (all / 2, all / 2));
            second.run(half).await.unwrap();
        };
        let done = async {
            joined.await;
            // What the second one has left behind comes back.
            eventually("the first one has all again", async || lanes(&one) == all).await;
            let rows: Vec<Outgoing> = (0..100).map(|n| outgoing("t", None, &format!("k:{n}"))).collect();
            emit(&setup.store, &rows).await;
            eventually("all are published", async || sink.len() == 100).await;
        };
        first.run(done).await.unwrap();
    };
    in_real_time(&setup.clock, work).await;
    assert_eq!((one.snapshot().lanes_lost, two.snapshot().lanes_lost), (0, 0), "given back, not taken away");
}

pub(crate) async fn a_weaker_promise_than_required_is_refused_at_start<F: EngineFixture>(setup: Setup<F>) {
    let start = async |key: bool, claims: bool| {
        let mut one = consumer("c", &setup.store, MemorySource::new()).require(Guarantee::EffectivelyOnce);
        one = if claims { one.on("noted", write::<F>) } else { one.on_idempotent("noted", write::<F>) };
        if key {
            one = one.key(oncebox::KeyStrategy::Coordinate);
        }
        one.order_by(OrderBy::Nothing).run(std::future::ready(())).await
    };
    let durable = setup.store.capabilities().durable;
    assert_eq!(start(false, true).await.is_ok(), durable);
    for (key, claims, names) in [(false, false, "`noted`"), (true, true, "the place in the broker")] {
        let error = start(key, claims).await.unwrap_err();
        assert!(matches!(error, RunError::Start(StartError::Weaker { .. })), "{error}");
        assert!(!durable || error.to_string().contains(names), "{error}");
    }
}
