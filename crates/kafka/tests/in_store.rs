//! Offsets in the store: each message takes effect once without a record of its own, and nothing is skipped.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{ANSWER, Place, admin, text};
use oncebox::consumer::{Drained, RunError, StartError, Stats};
use oncebox::memory::MemoryStore;
use oncebox::store::Ended;
use oncebox::{
    Consumer, ConsumerName, Context, Delivery, Failure, Gap, KeyStrategy, OrderBy, Outcome, Retry, Session, Source,
    Store, StoreError, StoreErrorKind, Transaction, Versioned,
};
use oncebox_kafka::{KafkaReceipt, OffsetsInStore, Start};
use oncebox_testkit::faults::{Fault, FaultPlan, Faulty};
use oncebox_testkit::{eventually, eventually_within};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

type OnMemory = Consumer<MemoryStore, OffsetsInStore>;

async fn record(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
    ctx.db().append("effects", &text)?;
    Ok(Outcome::applied())
}

/// Slow enough that others come and go meanwhile.
async fn slow(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
    ctx.db().append("effects", &text)?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    Ok(Outcome::applied())
}

async fn effects(store: &MemoryStore) -> Vec<String> {
    store.with_db(|db| db.rows("effects")).await.unwrap()
}

fn json(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|n| format!("\"{n:05}\"")).collect()
}

fn plain(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|n| format!("{n:05}")).collect()
}

fn consumer(place: &Place, store: &MemoryStore, source: OffsetsInStore) -> OnMemory {
    let consumer = Consumer::new("notes", store.clone(), source).on(&place.topic, record);
    consumer.key(KeyStrategy::Coordinate).lanes(4)
}

/// Runs it until there are so many effects.
async fn run_until(consumer: OnMemory, store: &MemoryStore, wanted: usize) -> Arc<Stats> {
    let stats = consumer.stats();
    let done = eventually("every effect is there", async || effects(store).await.len() >= wanted);
    assert_eq!(consumer.run(done).await.unwrap(), Drained::Clean);
    stats
}

/// What a consumer stops with.
async fn stops(consumer: OnMemory) -> String {
    match consumer.run(std::future::pending()).await {
        Err(RunError::Stopped { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

impl Place {
    fn in_store(&self) -> OffsetsInStore {
        self.source().offsets_in_store()
    }

    /// As if the broker had never heard of what was done: the group is at offset 0 of partition 0 again.
    async fn forget(&self) {
        let (servers, group, topic) = (self.servers.clone(), self.group.clone(), self.topic.clone());
        let forget = tokio::task::spawn_blocking(move || {
            let client: BaseConsumer =
                ClientConfig::new().set("bootstrap.servers", servers).set("group.id", group).create().unwrap();
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&topic, 0, Offset::Offset(0)).unwrap();
            client.commit(&list, CommitMode::Sync).unwrap();
        });
        forget.await.unwrap();
        assert_eq!(self.committed(0).await, Some(0));
    }

    /// Deletes the topic and makes another of its name.
    async fn make_anew(&self) {
        let (admin, options) = (admin(&self.servers), AdminOptions::new().operation_timeout(Some(ANSWER)));
        admin.delete_topics(&[&self.topic], &options).await.unwrap();
        eventually("the topic is made anew", async || {
            let topic = NewTopic::new(&self.topic, 1, TopicReplication::Fixed(1));
            admin.create_topics(&[topic], &options).await.unwrap().iter().all(Result::is_ok)
        })
        .await;
    }
}

/// The commit of the effects is what counts, not what the broker knows: a process that dies in between leaves nothing to
/// repeat. What was done is not even delivered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_the_commit_and_the_broker_repeats_nothing() {
    let name = "a_crash_between_the_commit_and_the_broker_repeats_nothing";
    let Some(place) = Place::or_skip(name, 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..100)).await;
    run_until(consumer(&place, &store, place.in_store()), &store, 100).await;
    place.forget().await;
    place.send(0, json(100..110)).await;
    let stats = run_until(consumer(&place, &store, place.in_store()), &store, 110).await;
    assert_eq!(effects(&store).await, plain(0..110), "in order, each once");
    assert_eq!(stats.snapshot().deliveries, 10, "the store's offset was sought");
    // The group is told afterwards, for those who watch its lag.
    place.await_committed(0, 110).await;
}

type Got = Vec<Delivery<KafkaReceipt>>;

async fn open(place: &Place, store: &MemoryStore) -> OffsetsInStore {
    let source = place.in_store();
    let consumer = store.consumer(&ConsumerName::new("notes").unwrap()).await.unwrap();
    Source::<MemoryStore>::serve(&source, consumer);
    Source::<MemoryStore>::open(&source, store).await.unwrap();
    source
}

async fn receive(source: &OffsetsInStore, count: usize) -> Got {
    let mut got = Vec::new();
    eventually("deliveries come", async || {
        let more = Source::<MemoryStore>::receive(source, count - got.len(), Duration::from_millis(50)).await;
        got.extend(more.unwrap());
        got.len() >= count
    })
    .await;
    got
}

/// Handles deliveries as an engine does, in one transaction. Answers which were done before.
async fn handle(source: &OffsetsInStore, store: &MemoryStore, got: &Got) -> Result<Vec<bool>, StoreError> {
    let mut tx = store.connect().await?.begin(ANSWER).await?;
    let receipts: Vec<&KafkaReceipt> = got.iter().map(|delivery| &**delivery.receipt()).collect();
    let done = Source::<MemoryStore>::done_in(source, &mut tx, &receipts).await?;
    let fresh = got.iter().zip(&done).filter(|(_, done)| !**done).map(|(delivery, _)| delivery);
    let fresh: Vec<_> = fresh.collect();
    for delivery in &fresh {
        tx.db().append("effects", &text(delivery).trim_matches('"')).unwrap();
    }
    let receipts: Vec<&KafkaReceipt> = fresh.iter().map(|delivery| &**delivery.receipt()).collect();
    Source::<MemoryStore>::ack_in(source, &mut tx, &receipts).await?;
    match tx.commit().await {
        Ended::Committed(_) => Ok(done),
        Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => Err(error),
    }
}

/// Whoever had the partition before, and does not know that it has moved on, commits nothing: neither what the new owner
/// has done nor what it has not. Two groups stand for the two sides of a rebalance that one of them has not noticed.
#[tokio::test(flavor = "multi_thread")]
async fn the_zombie_of_a_rebalance_commits_nothing() {
    let Some(mut place) = Place::or_skip("the_zombie_of_a_rebalance_commits_nothing", 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..4)).await;
    let old = open(&place, &store).await;
    let in_hand = receive(&old, 4).await;
    assert_eq!(handle(&old, &store, &in_hand[..1].iter().map(Delivery::twin).collect()).await.unwrap(), [false]);
    place.group = common::random("group");
    let new = open(&place, &store).await;
    let taken = receive(&new, 3).await;
    assert_eq!(text(&taken[0]), "\"00001\"", "it goes on where the store is");
    assert_eq!(handle(&new, &store, &taken[..1].iter().map(Delivery::twin).collect()).await.unwrap(), [false]);
    for late in [&in_hand[1..2], &in_hand[2..3], &in_hand[1..]] {
        let late = late.iter().map(Delivery::twin).collect();
        let error = handle(&old, &store, &late).await.expect_err("it has a new owner");
        assert_eq!(error.kind(), StoreErrorKind::Fenced);
    }
    // Without a look at the beginning, too.
    let mut tx = store.connect().await.unwrap().begin(ANSWER).await.unwrap();
    let late = [&**in_hand[2].receipt()];
    let refused = Source::<MemoryStore>::ack_in(&old, &mut tx, &late).await.expect_err("it has a new owner");
    assert_eq!(refused.kind(), StoreErrorKind::Fenced);
    tx.rollback().await;
    assert_eq!(effects(&store).await, plain(0..2));
    Source::<MemoryStore>::close(&old).await;
}

/// A message below the store's offset is a duplicate, and one that would leave a gap stops everything.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_follows_the_stores_offset_moves_it() {
    let Some(place) = Place::or_skip("only_what_follows_the_stores_offset_moves_it", 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..4)).await;
    let source = open(&place, &store).await;
    let got = receive(&source, 4).await;
    let some = |places: &[usize]| -> Got { places.iter().map(|place| got[*place].twin()).collect() };
    for gap in [&[1][..], &[0, 2], &[3, 1]] {
        let error = handle(&source, &store, &some(gap)).await.expect_err("a gap");
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    }
    assert_eq!(handle(&source, &store, &some(&[1, 0])).await.unwrap(), [false, false], "in any order");
    assert_eq!(handle(&source, &store, &some(&[0, 1, 2])).await.unwrap(), [true, true, false]);
    assert_eq!(handle(&source, &store, &some(&[2])).await.unwrap(), [true]);
    let mut seen = effects(&store).await;
    seen.sort_unstable();
    assert_eq!(seen, plain(0..3));
}

/// Processes of one group come and go while messages flow: each message takes effect once, each partition in its order.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_changes_all_the_time_does_each_message_once() {
    let name = "a_group_that_changes_all_the_time_does_each_message_once";
    let Some(place) = Place::or_skip(name, 4).await else { return };
    let store = MemoryStore::new();
    for partition in 0..4 {
        place.send(partition, json((0..250).map(|n| n * 4 + usize::try_from(partition).unwrap()))).await;
    }
    let process = async |until: usize| {
        // Nobody waits for what another has in hand: it is done by then, or refused.
        let source = place.source().drain(Duration::ZERO).offsets_in_store();
        let consumer = Consumer::new("notes", store.clone(), source).on(&place.topic, slow);
        let consumer = consumer.key(KeyStrategy::Coordinate).bounds(|bounds| bounds.batch_messages_max = 5);
        let done = eventually_within(ANSWER * 3, "its time is over", async || effects(&store).await.len() >= until);
        consumer.run(done).await.unwrap();
    };
    tokio::join!(process(1_000), process(150), process(300), process(450));
    let mut seen = effects(&store).await;
    for partition in 0..4 {
        let of_partition = seen.iter().filter(|text| text.parse::<usize>().unwrap() % 4 == partition);
        assert!(of_partition.is_sorted(), "partition {partition} in order");
    }
    seen.sort_unstable();
    assert_eq!(seen, plain(0..1_000));
}

/// Handles what is in the topic on a store whose commits end as `fault` says, three times in a row.
async fn with_lost_answers(place: &Place, fault: Fault) -> (Vec<String>, Arc<Stats>) {
    let (memory, plan) = (MemoryStore::new(), FaultPlan::new());
    // Of the transactions that handle messages, or set one aside; not of those that take partitions over.
    let (mut locked, mut ended) = (false, 0);
    plan.decide(move |call| {
        locked |= call == "lock-offsets";
        let ends = call == "commit" && std::mem::take(&mut locked) && ended < 3;
        ended += usize::from(ends);
        ends.then_some(fault)
    });
    let handler = async |mut ctx: Context<Faulty<MemoryStore>>, text: String| {
        if text == "00013" {
            return Err(Failure::permanent("never"));
        }
        ctx.db().append("effects", &text)?;
        Ok(Outcome::applied())
    };
    let consumer = Consumer::new("notes", Faulty::new(memory.clone(), plan), place.in_store())
        .on(&place.topic, handler)
        .key(KeyStrategy::Coordinate)
        .bounds(|bounds| bounds.batch_messages_max = 8);
    let stats = consumer.stats();
    let is_done =
        async || stats.snapshot().dead == 1 && effects(&memory).await.len() >= 49 && stats.snapshot().in_hand == 0;
    consumer.run(eventually("all is done", is_done)).await.unwrap();
    (effects(&memory).await, stats)
}

/// A commit whose answer is lost is looked up by the offset: what went through is not run again, what did not is.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_looked_up() {
    let Some(place) = Place::or_skip("a_commit_whose_answer_is_lost_is_looked_up", 1).await else { return };
    place.send(0, json(0..50)).await;
    for fault in [Fault::AfterDoing, Fault::Lost] {
        let (seen, stats) = with_lost_answers(&place, fault).await;
        assert_eq!(seen, plain((0..50).filter(|n| *n != 13)), "{fault:?}");
        let stats = stats.snapshot();
        assert_eq!((stats.handled, stats.dead, stats.transport_duplicates), (49, 1, 0), "{fault:?}: {stats:?}");
    }
}

/// A message that fails is set aside with a record of its own; those behind it go on, and it takes effect once later.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_set_aside_and_done_once_later() {
    let Some(place) = Place::or_skip("what_fails_is_set_aside_and_done_once_later", 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..60)).await;
    place.send(0, ["not json".to_owned()]).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let make = || {
        let tries = Arc::clone(&tries);
        let handler = move |mut ctx: Context<MemoryStore>, text: String| {
            let tries = Arc::clone(&tries);
            async move {
                // Each twentieth fails three times.
                if text.parse::<usize>().unwrap() % 20 == 7 && tries.fetch_add(1, SeqCst) < 9 {
                    return Err(Failure::transient("not now"));
                }
                ctx.db().append("effects", &text)?;
                Ok(Outcome::applied())
            }
        };
        let consumer = Consumer::new("notes", store.clone(), place.in_store()).on(&place.topic, handler);
        let retry = Retry::default().first(Duration::from_millis(20)).max(Duration::from_millis(40));
        consumer.key(KeyStrategy::Coordinate).retry(retry)
    };
    let stats = run_until(make(), &store, 60).await.snapshot();
    assert_eq!((stats.dead, stats.handled), (1, 60), "{stats:?}");
    assert!(stats.parked >= 1, "{stats:?}");
    place.forget().await;
    place.send(0, json(60..70)).await;
    run_until(make(), &store, 70).await;
    let mut seen = effects(&store).await;
    assert_eq!(seen.iter().filter(|text| text.as_str() >= "00060").count(), 10);
    seen.sort_unstable();
    assert_eq!(seen, plain(0..70));
}

/// A topic of the same name is another log: to go on at the old offset would skip, to begin anew would repeat.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_anew_stops_the_consumer() {
    let Some(place) = Place::or_skip("a_topic_that_was_made_anew_stops_the_consumer", 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..20)).await;
    run_until(consumer(&place, &store, place.in_store()), &store, 20).await;
    place.make_anew().await;
    place.send(0, json(100..105)).await;
    let reason = stops(consumer(&place, &store, place.in_store())).await;
    assert!(reason.contains("is 20, and the partition ends at 5: the topic was made anew"), "{reason}");
    // Grown beyond the old offset, it is known by the record before it.
    place.send(0, json(105..140)).await;
    let reason = stops(consumer(&place, &store, place.in_store())).await;
    assert!(reason.contains("the record at offset 19") && reason.contains("not the one that was handled"), "{reason}");
    assert_eq!(effects(&store).await, plain(0..20), "nothing of it was handled");
}

/// Records that were deleted before they were handled are not skipped silently.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_expired_unread_stop_the_consumer() {
    let Some(place) = Place::or_skip("records_that_expired_unread_stop_the_consumer", 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..10)).await;
    run_until(consumer(&place, &store, place.in_store()), &store, 10).await;
    place.send(0, json(10..30)).await;
    let delete = async |before| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&place.topic, 0, Offset::Offset(before)).unwrap();
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        admin(&place.servers).delete_records(&list, &options).await.unwrap();
    };
    // All that is gone was handled: nothing is missing, and there is nothing to know the log by.
    delete(10).await;
    run_until(consumer(&place, &store, place.in_store()), &store, 30).await;
    place.send(0, json(30..50)).await;
    delete(40).await;
    let reason = stops(consumer(&place, &store, place.in_store())).await;
    assert!(reason.contains("is 30, and the broker's oldest is 40: records were deleted unread"), "{reason}");
    assert_eq!(effects(&store).await, plain(0..30));
}

/// Where to begin is never guessed, and chosen once.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_is_chosen() {
    let Some(place) = Place::or_skip("a_first_start_is_chosen", 1).await else { return };
    let store = MemoryStore::new();
    place.send(0, json(0..5)).await;
    place.forget().await;
    let careless = || place.careless_source();
    let reason = stops(consumer(&place, &store, careless().offsets_in_store())).await;
    assert!(reason.contains("no offset") && reason.contains("adopt_group_offsets"), "{reason}");
    // The end, as it was at the first start.
    let from_end = || careless().start_from(Start::End).offsets_in_store();
    let begun = consumer(&place, &store, from_end());
    begun.run(place.await_committed(0, 5)).await.unwrap();
    place.send(0, json(5..8)).await;
    run_until(consumer(&place, &store, from_end()), &store, 3).await;
    assert_eq!(effects(&store).await, plain(5..8));
    // Another consumer goes on where the group is.
    let adopted = consumer(&place, &MemoryStore::new(), careless().offsets_in_store().adopt_group_offsets());
    let stats = adopted.stats();
    place.send(0, json(8..10)).await;
    adopted.run(eventually("two come", async || stats.snapshot().handled == 2)).await.unwrap();
    assert_eq!(stats.snapshot().deliveries, 2);
}

/// What would need a record per message, or leave gaps, is refused before anything is read.
#[tokio::test]
async fn what_does_not_go_with_it_is_refused() {
    let store = MemoryStore::new();
    let consumer = || {
        let source = oncebox_kafka::KafkaSource::new("127.0.0.1:1", "readers", "orders").offsets_in_store();
        Consumer::new("notes", store.clone(), source).on("orders", record)
    };
    let by_place = || consumer().key(KeyStrategy::Coordinate);
    let mistake = async |consumer: OnMemory| match consumer.run(std::future::pending()).await {
        Err(RunError::Start(StartError::Offsets { mistake, .. })) => mistake,
        other => panic!("{other:?}"),
    };
    assert!(mistake(consumer()).await.contains("key(KeyStrategy::Coordinate)"));
    assert!(mistake(by_place().order_by(OrderBy::MessageKey)).await.contains("order_by"));
    assert!(mistake(by_place().business_key(KeyStrategy::MessageId)).await.contains("business key"));
    assert!(mistake(by_place().key_was(KeyStrategy::MessageId)).await.contains("key_was"));
    let versioned = Versioned::by_order_key().on_gap(Gap::Apply);
    assert!(mistake(by_place().versioned(versioned)).await.contains("versioned"));
    match by_place().stored().run(std::future::pending()).await {
        Err(RunError::Start(StartError::Offsets { mistake, .. })) => assert!(mistake.contains("stored mode")),
        other => panic!("{other:?}"),
    }
    let source = oncebox_kafka::KafkaSource::new("127.0.0.1:1", "readers", "orders").offsets_in_store();
    let error = Source::<MemoryStore>::open(&source, &store).await.unwrap_err();
    assert!(error.to_string().contains("belongs to no consumer"), "{error}");
}
