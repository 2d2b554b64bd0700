//! A parked message and the record under its key are one fact: whichever was written first, the message runs.

use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Content, Context, Gap, Message, OrderBy, Versioned};
use oncebox_testkit::store::Setup;

use super::parking::failing;
use super::rig::*;

/// Runs a consumer that knows another type only, until `message` is dead in its table.
async fn dead_of_unknown_type<F: EngineFixture>(setup: &Setup<F>, message: Message, order: OrderBy) {
    let source = MemorySource::new();
    source.send(message);
    run_dry(consumer("c", &setup.store, source.clone()).on("other", write::<F>).order_by(order), &source).await;
    assert_eq!(only_parked(setup).await.state, DEAD);
}

pub(crate) async fn a_message_parked_behind_itself_is_applied<F: EngineFixture>(setup: Setup<F>) {
    let message = note("1", "a").with_order_key("k");
    dead_of_unknown_type(&setup, message.clone(), OrderBy::MessageKey).await;
    // Its handler is deployed, and the broker delivers it again.
    let source = MemorySource::new();
    let ordered = || consumer("c", &setup.store, source.clone()).on("noted", write::<F>).order_by(OrderBy::MessageKey);
    source.send(message.clone());
    run_until(ordered(), "the redelivery is settled", async |seen| source.backlog() == 0 && seen.in_hand == 0).await;
    assert_eq!(only_parked(&setup).await.state, DEAD, "it waits for the operator, in its place");
    assert!(effects(&setup).await.is_empty());
    deal_with_first(&setup, false).await;
    run_until(ordered(), "it is applied", async |seen| seen.handled == 1 && seen.in_hand == 0).await;
    source.send(message);
    let seen = run_dry(ordered(), &source).await;
    assert_eq!((seen.transport_duplicates, effects(&setup).await), (1, vec!["a".to_owned()]));
    assert!(F::parked(&setup.store).await.is_empty());
}

/// In a rolling deployment: the old process gets a copy of what the new one has handled.
pub(crate) async fn a_copy_of_what_was_handled_is_not_parked_for_its_type<F: EngineFixture>(setup: Setup<F>) {
    let (source, [first, second]) = (MemorySource::new(), ["1", "2"].map(|id| note(id, id).with_order_key("k")));
    let ordered = || consumer("c", &setup.store, source.clone()).order_by(OrderBy::MessageKey);
    source.send(first.clone());
    run_dry(ordered().on("noted", write::<F>), &source).await;
    source.send(first);
    let seen = run_dry(ordered().on("other", write::<F>), &source).await;
    assert_eq!((seen.dead, F::parked(&setup.store).await.len()), (0, 0), "nothing is in the way of the next");
    source.send(second);
    run_dry(ordered().on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["1", "2"]);
}

pub(crate) async fn a_replayed_message_and_its_redelivery_that_both_fail_once_are_applied<F: EngineFixture>(
    setup: Setup<F>,
) {
    dead_of_unknown_type(&setup, note("1", "a"), OrderBy::Nothing).await;
    deal_with_first(&setup, false).await;
    let (source, calls) = (MemorySource::new(), std::sync::Arc::default());
    let closed = || {
        let fails = failing::<F>(&calls, |_, _| Some(refuse().retry_after(Duration::from_secs(40))));
        consumer("c", &setup.store, source.clone()).on("noted", fails)
    };
    let judged = async |seen: &Snapshot| seen.failures == 1 && seen.in_hand == 0;
    run_until(closed(), "the replayed one failed in passing", judged).await;
    source.send(note("1", "a"));
    run_until(closed(), "its redelivery failed as well", async |seen| judged(seen).await && source.backlog() == 0)
        .await;
    assert_eq!(only_parked(&setup).await.state, RETRIES);
    setup.advance(Duration::from_secs(41)).await;
    let open = consumer("c", &setup.store, source.clone()).on("noted", write::<F>);
    run_until(open, "it is applied", async |seen| seen.handled == 1 && seen.in_hand == 0).await;
    assert_eq!(effects(&setup).await, ["a"]);
    assert!(F::parked(&setup.store).await.is_empty());
}

pub(crate) async fn a_replayed_message_that_waits_for_a_version_is_applied<F: EngineFixture>(setup: Setup<F>) {
    let version = |id: &str, version: u64| {
        let mut message = note(id, &format!("a:{version}")).with_order_key("a");
        message.version = Some(version);
        message
    };
    dead_of_unknown_type(&setup, version("two", 2), OrderBy::Nothing).await;
    let source = MemorySource::new();
    let gap = Gap::Wait { time: Duration::from_secs(86_400), messages: 10 };
    let versioned = || {
        consumer("c", &setup.store, source.clone())
            .on("noted", write::<F>)
            .versioned(Versioned::by_order_key().on_gap(gap))
            .clock(setup.clock.clone())
    };
    deal_with_first(&setup, false).await;
    run_until(versioned(), "it waits for the first", async |seen| seen.gaps >= 1 && seen.in_hand == 0).await;
    source.send(version("one", 1));
    let both = async |seen: &Snapshot| {
        // It looks after its gap again and again, by the store's clock.
        setup.advance(Duration::from_secs(6)).await;
        seen.handled == 2 && seen.in_hand == 0
    };
    run_until(versioned(), "both are applied", both).await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2"]);
    assert!(F::parked(&setup.store).await.is_empty());
}

/// A changed fingerprint can't be compared with the one in the record; what was known to be another message when it
/// was parked stays one.
pub(crate) async fn a_conflict_stays_one_when_fingerprints_change<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "b")]);
    let one = |content: Content| consumer("c", &setup.store, source.clone()).fingerprint(content).lanes(1);
    let fails = |_: Context<F::Store>, _: Note| async { Err(oncebox::Failure::permanent("the case said so")) };
    run_dry(one(Content::default()).on("noted", fails), &source).await;
    assert_eq!(states(&setup).await, [("1".to_owned(), DEAD), ("1".to_owned(), DEAD)]);
    let rows = F::parked(&setup.store).await;
    assert_eq!(rows.iter().filter(|row| row.cause.ends_with("/conflict")).count(), 1);
    // Both are replayed by a consumer that makes fingerprints of something else.
    for _ in 0..2 {
        revive_all(&setup).await;
        let judged = async |seen: &Snapshot| seen.retried >= 1 && seen.in_hand == 0 && due(&setup).await == 0;
        run_until(one(Content::raw()).on("noted", write::<F>), "both are judged", judged).await;
    }
    assert_eq!(effects(&setup).await.len(), 1);
    let left = only_parked(&setup).await;
    assert_eq!((left.state, left.cause.as_str()), (DEAD, "permanent/noted/conflict"));
}
