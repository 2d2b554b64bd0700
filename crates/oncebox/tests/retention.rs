//! Retention beside consumers: old records go, what must stay stays, and nothing is applied twice, whatever fails.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::sync::Arc;
use std::time::Duration;

use oncebox::horizon::{Consumers, RETENTION_MIN};
use oncebox::memory::{MemorySource, MemoryStore};
use oncebox::quarantine::QuarantineStore;
use oncebox::retention::{RETENTION, Retention, RetentionError};
use oncebox::{Clock, Consumer, ConsumerName, Context, Failure, Message, MessageId, Outcome, Session, Transaction};
use oncebox_testkit::faults::{Fault, FaultPlan, Faulty};
use oncebox_testkit::{ManualClock, eventually};

fn messages(count: usize, clock: &Arc<ManualClock>) -> Vec<Message> {
    let message =
        |n: usize| Message::made_by(clock.as_ref(), "noted").with_id(MessageId::new(format!("m{n}")).unwrap());
    (0..count).map(message).collect()
}

async fn note(mut ctx: Context<MemoryStore>, message: Message) -> oncebox::Result<Outcome> {
    let id = message.id.as_ref().unwrap().to_string();
    if id == "m7" {
        return Err(Failure::permanent("it can't be read"));
    }
    ctx.db().append("notes", &id)?;
    Ok(Outcome::applied())
}

async fn consume(store: &MemoryStore, clock: &Arc<ManualClock>, messages: Vec<Message>) -> (u64, u64) {
    let source = MemorySource::new();
    source.send_all(messages);
    let consumer = Consumer::new("notes", store.clone(), source.clone());
    let consumer = consumer.clock(clock.clone()).on_raw("noted", note);
    let stats = consumer.stats();
    let done = eventually("all were seen", async || source.backlog() == 0 && stats.snapshot().in_hand == 0);
    consumer.run(done).await.unwrap();
    let seen = stats.snapshot();
    (seen.handled, seen.too_old)
}

async fn old(store: &impl QuarantineStore, clock: &Arc<ManualClock>) -> (u64, u64) {
    let consumer = store.consumer(&ConsumerName::new("notes").unwrap()).await.unwrap();
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let old = tx.old_records(consumer, clock.now()).await.unwrap();
    tx.rollback().await;
    (old.records, old.held)
}

async fn pass(store: &MemoryStore) -> oncebox::retention::RetentionProgress {
    let retention = Retention::new(store.clone()).keep("notes", RETENTION).unwrap();
    let retention = retention.bounds(|bounds| bounds.step_max = 10);
    let stats = retention.stats();
    let done = eventually("a pass was made", async || {
        stats.snapshot().get("notes").is_some_and(|progress| progress.passes > 0)
    });
    retention.run(done).await.unwrap();
    stats.snapshot()["notes"]
}

#[tokio::test(start_paused = true)]
async fn old_records_go_and_what_comes_again_is_not_applied() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::with_clock(clock.clone());
    let sent = messages(100, &clock);
    assert_eq!(consume(&store, &clock, sent.clone()).await.0, 99);
    assert_eq!(pass(&store).await.deleted, 0, "nothing is old yet");
    clock.advance(RETENTION + Duration::from_secs(1));
    let progress = pass(&store).await;
    assert_eq!(progress.deleted, 99, "all but the one that is parked");
    assert!(progress.steps >= 10 && progress.horizon.is_some(), "{progress:?}");
    assert_eq!(old(&store, &clock).await, (1, 1));
    let (handled, too_old) = consume(&store, &clock, sent).await;
    assert_eq!((handled, too_old), (0, 99), "nobody can tell, so nobody applies");
    let rows: Vec<String> = store.with_db(|db| db.rows("notes")).await.unwrap();
    assert_eq!(rows.len(), 99);
}

#[tokio::test]
async fn less_than_an_hour_is_refused() {
    let retention = Retention::new(MemoryStore::new());
    let refused = retention.keep("notes", RETENTION_MIN - Duration::from_secs(1)).unwrap_err();
    assert!(matches!(refused, RetentionError::TooShort { .. }), "{refused}");
    assert!(refused.to_string().contains("an hour at least"), "{refused}");
    let wrong = Retention::new(MemoryStore::new()).keep("no name", RETENTION).unwrap_err();
    assert!(matches!(wrong, RetentionError::Name(_)), "{wrong}");
}

/// A store in which a step takes so long, with old records in it, by a clock that waits for nobody.
async fn slow_store(records: usize, step_takes: Duration) -> (Faulty<MemoryStore>, FaultPlan) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::with_clock(clock.clone());
    consume(&store, &clock, messages(records, &clock)).await;
    clock.advance(RETENTION + Duration::from_secs(1));
    let plan = FaultPlan::default();
    plan.fail("expire", Fault::Delay(step_takes), usize::MAX);
    (Faulty::new(store, plan.clone()), plan)
}

/// A step that takes longer than it should is followed by smaller ones, and by rests that leave the store to others for
/// nine tenths of the time.
#[tokio::test(start_paused = true)]
async fn a_slow_store_gets_smaller_steps_and_nine_tenths_of_the_time() {
    let step = Duration::from_millis(40);
    let (store, plan) = slow_store(1001, step).await;
    let retention = Retention::new(store).keep("notes", RETENTION).unwrap();
    let stats = retention.stats();
    let began = tokio::time::Instant::now();
    let done = eventually("a pass was made", async || {
        stats.snapshot().get("notes").is_some_and(|progress| progress.passes > 0)
    });
    retention.run(done).await.unwrap();
    let (progress, took) = (stats.snapshot()["notes"], began.elapsed());
    assert_eq!(progress.deleted, 1000, "all but the one that is parked");
    // 250, 125, 62 and then 50 at a time: four steps of 250 would have been enough.
    assert!(progress.steps >= 14, "{progress:?}");
    let worked = step * u32::try_from(plan.count("expire")).unwrap();
    assert!(took >= worked * 9 && took <= worked * 12, "it worked for {worked:?} of {took:?}");
}

/// Where a round takes longer than the time between two, it rests less, and only then.
#[tokio::test(start_paused = true)]
async fn a_runner_that_falls_behind_works_harder() {
    let step = Duration::from_millis(40);
    for (between, times, shares) in [(3600, 9..=12, 10..=10), (1, 2..=6, 20..=50)] {
        let (store, plan) = slow_store(1001, step).await;
        let retention = Retention::new(store).keep("notes", RETENTION).unwrap();
        let retention = retention.bounds(|bounds| bounds.every = Duration::from_secs(between));
        let stats = retention.stats();
        let began = tokio::time::Instant::now();
        let done = eventually("most are gone", async || {
            stats.snapshot().get("notes").is_some_and(|progress| progress.deleted > 900)
        });
        retention.run(done).await.unwrap();
        let worked = step * u32::try_from(plan.count("expire")).unwrap();
        let took = began.elapsed().div_duration_f64(worked).round() as u32;
        assert!(times.contains(&took), "it took {took} times the work, for a round every {between} s");
        assert!(shares.contains(&stats.share()), "{} % for a round every {between} s", stats.share());
    }
}

#[tokio::test]
async fn an_archive_that_would_hold_nothing_is_refused() {
    use oncebox::retention::ArchiveKept::{For, ForEver};
    let kept = || Retention::new(MemoryStore::new()).keep("notes", RETENTION).unwrap();
    let short = kept().archive("notes", For(RETENTION)).unwrap_err();
    assert!(matches!(short, RetentionError::ArchiveTooShort { .. }), "{short}");
    let nobody = kept().archive("letters", ForEver).unwrap_err();
    assert!(matches!(nobody, RetentionError::NotKept { .. }), "{nobody}");
    assert!(kept().archive("notes", For(RETENTION * 2)).is_ok());
}
