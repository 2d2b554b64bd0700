//! What is known of messages whose records are gone: keys in the archive, and a checkpoint.

use std::time::Duration;

use oncebox::archive::Archives;
use oncebox::horizon::{Consumers, RETENTION_MIN};
use oncebox::memory::MemorySource;
use oncebox::quarantine::Quarantine;
use oncebox::retention::{ArchiveKept, RETENTION, Retention};
use oncebox::{Clock, ConsumerName, Ended, Key, Message, Session, Store, Timestamp, Transaction};
use oncebox_testkit::eventually;
use oncebox_testkit::faults::{FaultPlan, Faulty};
use oncebox_testkit::store::Setup;

use super::rig::*;

const MESSAGES: usize = 60;

fn made_in(year: i16, id: &str) -> Message {
    let mut message = note(id, id);
    message.time = format!("{year}-07-01T00:00:00Z").parse().unwrap();
    message
}

/// All messages are handled by consumer `c`, and everything there is has become old.
async fn handled_long_ago<F: EngineFixture>(setup: &Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..MESSAGES).map(|n| made_in(2020, &n.to_string())));
    let one = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone()).on("noted", write::<F>);
    assert_eq!(run_dry(one, &source).await.handled as usize, MESSAGES);
    let now: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    setup.advance(now.duration_since(setup.clock.now()).unsigned_abs()).await;
}

/// Which of the keys have a record, and which are in the archive.
async fn known<F: EngineFixture>(setup: &Setup<F>) -> (Vec<bool>, Vec<bool>) {
    let keys: Vec<Key> = (0..MESSAGES).map(|n| Key::id(&n.to_string()).unwrap()).collect();
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let records = tx.remembered(consumer, &keys).await.unwrap();
    let archived = tx.archived(consumer, &keys).await.unwrap();
    tx.rollback().await;
    (records.iter().map(Option::is_some).collect(), archived.iter().map(Option::is_some).collect())
}

/// Whatever fails, and wherever the runner is stopped: a key is in the inbox or in the archive, and never in both.
pub(crate) async fn random_faults_in_a_runner_that_archives_lose_no_key<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let calls = ["connect", "begin", "store-time", "expire", "sweep-received", "commit", "rollback", "resolve"];
    plan.random(29, 0.25, &calls);
    let runner = || {
        let kept = Retention::new(store.clone()).keep("c", RETENTION).unwrap();
        kept.archive("c", ArchiveKept::ForEver).unwrap().bounds(|bounds| {
            bounds.step_max = 7;
            bounds.share = 100;
            bounds.failure_rest = Duration::from_millis(1);
        })
    };
    let mut halfway = 0;
    for steps in [1, 2, 3, u64::MAX] {
        let retention = runner();
        let stats = retention.stats();
        let done = eventually("steps are made", async || {
            stats.snapshot().get("c").is_some_and(|progress| progress.steps >= steps || progress.passes > 0)
        });
        retention.run(done).await.unwrap();
        let (records, archived) = known(&setup).await;
        for (number, (record, archived)) in records.iter().zip(&archived).enumerate() {
            assert!(record ^ archived, "{number}: it has a record: {record}; it is archived: {archived}");
        }
        halfway += u64::from(records.contains(&true) && archived.contains(&true));
    }
    assert!(halfway > 0 && plan.injected() > 3, "nothing went wrong on its way, so nothing was seen");
    assert_eq!(known(&setup).await, (vec![false; MESSAGES], vec![true; MESSAGES]));
}

/// An archive that is kept for a time goes after it, and not before.
pub(crate) async fn an_archive_goes_after_its_time<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let century = Duration::from_secs(100 * 365 * 86_400);
    let pass = async |kept| {
        let retention = Retention::new(setup.store.clone()).keep("c", RETENTION).unwrap();
        let retention = retention.archive("c", ArchiveKept::For(kept)).unwrap().bounds(|bounds| {
            (bounds.step_max, bounds.share) = (25, 100);
            // Three blocks, one at a time.
        });
        let stats = retention.stats();
        // A round sweeps the archive after the pass; the next begins when that is over.
        let done =
            eventually("a pass was made", async || stats.snapshot().get("c").is_some_and(|seen| seen.passes > 0));
        retention.run(done).await.unwrap();
    };
    pass(2 * century).await;
    assert_eq!(known(&setup).await.1, [true; MESSAGES]);
    // By the store's clock it is the year 2100; by that of the records, which is the server's, it is today.
    eventually("the archive is gone", async || {
        pass(RETENTION + Duration::from_secs(1)).await;
        known(&setup).await.1 == [false; MESSAGES]
    })
    .await;
}

/// What was made before a checkpoint and has no record is not applied; what has one is a duplicate, and what was made
/// later is new.
pub(crate) async fn what_was_made_before_a_checkpoint_is_not_applied<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let run = async || {
        let one = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone()).on("noted", write::<F>);
        run_dry(one, &source).await
    };
    source.send(made_in(2020, "known"));
    assert_eq!(run().await.handled, 1);
    let now: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    setup.advance(now.duration_since(setup.clock.now()).unsigned_abs()).await;
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    assert!(tx.set_checkpoint(consumer, setup.clock.now() - RETENTION_MIN).await.unwrap());
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    let mut young = note("young", "young");
    young.time = setup.clock.now();
    source.send_all([made_in(2020, "known"), made_in(2021, "old"), young]);
    let seen = run().await;
    assert_eq!((seen.handled, seen.transport_duplicates, seen.too_old), (1, 1, 1));
    assert_eq!(effects(&setup).await, ["known", "young"]);
    let row = only_parked(&setup).await;
    assert_eq!((row.id.as_str(), row.state, row.cause.as_str()), ("old", DEAD, "permanent/noted/too-old"));
}
