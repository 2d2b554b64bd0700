//! Order with messages that are set aside: what follows waits behind them, and nobody else does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Consumer, ConsumerStore, Failure, KeyStrategy, Message, OrderBy};
use oncebox_testkit::store::Setup;

use super::order::by_key;
use super::parking::failing;
use super::rig::*;

fn in_order(key: &str, n: u32) -> Message {
    note(&format!("{key}{n}"), &format!("{key}:{n}")).with_order_key(key)
}

fn ordered<S: ConsumerStore>(store: &S, source: &MemorySource) -> Consumer<S, MemorySource> {
    consumer("c", store, source.clone()).order_by(OrderBy::MessageKey)
}

fn rows<const N: usize>(expected: [(&str, i16); N]) -> [(String, i16); N] {
    expected.map(|(id, state)| (id.to_owned(), state))
}

pub(crate) async fn what_follows_a_parked_message_is_applied_in_order_after_it<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let minute = Duration::from_secs(60);
    let calls = Arc::default();
    let once = Arc::new(AtomicBool::new(true));
    let start = || {
        let once = Arc::clone(&once);
        let handler = failing::<F>(&calls, move |_, note| {
            let fails = note.text == "k:0" && once.load(SeqCst);
            fails.then(|| refuse().retry_after(minute))
        });
        ordered(&setup.store, &source).on("noted", handler)
    };
    source.send_all((0..3).flat_map(|n| [in_order("k", n), in_order("free", n)]));
    let waits = async |seen: &Snapshot| seen.handled == 3 && seen.parked_behind == 2 && seen.in_hand == 0;
    run_until(start(), "one waits for its time, two for their turn", waits).await;
    // After a restart too.
    source.send_all((3..5).flat_map(|n| [in_order("k", n), in_order("free", n)]));
    let waits = async |seen: &Snapshot| seen.handled == 2 && seen.parked_behind == 2 && seen.in_hand == 0;
    run_until(start(), "two more wait for their turn", waits).await;
    assert_eq!(
        states(&setup).await,
        rows([("k0", RETRIES), ("k1", BEHIND), ("k2", BEHIND), ("k3", BEHIND), ("k4", BEHIND)])
    );
    let behind = F::parked(&setup.store).await.remove(1);
    assert_eq!((behind.class, behind.attempts, behind.cause.as_str()), (None, 0, "waiting/noted/behind"));

    once.store(false, SeqCst);
    setup.advance(minute).await;
    source.send(in_order("k", 5));
    let seen = run_until(start(), "all are applied", async |seen| seen.handled == 6).await;
    assert_eq!(seen.failures, 0);
    for (key, numbers) in by_key(&F::effects(&setup.store).await) {
        assert_eq!(numbers, (0..if key == "k" { 6 } else { 5 }).collect::<Vec<_>>(), "order of {key}");
    }
    assert!(F::parked(&setup.store).await.is_empty());
}

pub(crate) async fn a_dead_message_holds_up_its_key_and_no_other<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let calls = Arc::default();
    let start = || {
        let bad = |note: &Note| (note.text == "k:1").then(|| Failure::permanent("the case said so"));
        ordered(&setup.store, &source).on("noted", failing::<F>(&calls, move |_, note| bad(note)))
    };
    source.send_all((0..3).flat_map(|n| [in_order("k", n), in_order("free", n)]));
    run_until(start(), "the rest is done", async |seen| seen.handled == 4 && seen.parked_behind == 1).await;
    setup.advance(Duration::from_secs(24 * 3600)).await;
    source.send_all([in_order("k", 3), in_order("free", 3)]);
    let rest = async |seen: &Snapshot| seen.handled == 1 && seen.parked_behind == 1 && seen.in_hand == 0;
    let seen = run_until(start(), "the rest is done", rest).await;
    assert_eq!((seen.retried, source.backlog()), (0, 0));
    assert_eq!(states(&setup).await, rows([("k1", DEAD), ("k2", BEHIND), ("k3", BEHIND)]));
    let applied = by_key(&F::effects(&setup.store).await);
    assert_eq!((&applied["k"], &applied["free"]), (&vec![0], &vec![0, 1, 2, 3]));
}

/// One that can't be read is parked in its place: not before an earlier one of its key that is still to be judged.
pub(crate) async fn what_cannot_be_read_is_parked_in_its_place<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let mut unreadable = in_order("k", 1);
    unreadable.kind = "nobody.knows".to_owned();
    source.send_all([in_order("free", 0), in_order("k", 0), unreadable, in_order("k", 2)]);
    let calls = Arc::default();
    // Fails in the batch and alone, and then in its place among what is parked.
    let fails = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let handler =
        failing::<F>(&calls, move |_, note| (note.text == "k:0" && fails.fetch_add(1, SeqCst) < 3).then(refuse));
    let done = async |seen: &Snapshot| seen.handled == 2 && seen.dead == 1 && seen.parked_behind >= 1;
    run_until(ordered(&setup.store, &source).on("noted", handler).lanes(1), "each has its end", done).await;
    assert_eq!(effects(&setup).await, ["free:0", "k:0"]);
    assert_eq!(states(&setup).await, rows([("k1", DEAD), ("k2", BEHIND)]));
}

/// A conflict behind a message that must wait for the next transaction waits as well: parked, it would be in its way.
pub(crate) async fn a_conflict_is_parked_in_its_place<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let message = |id, business: &str, text: &str| {
        let message = note(id, text).with_json(&serde_json::json!({ "text": text, "b": business })).unwrap();
        message.with_order_key("k")
    };
    source.send_all([message("1", "x", "k:1"), message("9", "z", "k:2")]);
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    // The second shares the first one's business key and is judged in the next transaction; the third is a conflict.
    source.send_all([message("1", "x", "k:1"), message("2", "x", "k:3"), message("9", "z", "CANARY")]);
    let both = ordered(&setup.store, &source).on("noted", write::<F>).lanes(1);
    let both = both.business_key(KeyStrategy::template("{b}").unwrap()).business_key_was(None);
    run_dry(both.order_was(OrderBy::Nothing), &source).await;
    assert_eq!(F::effects(&setup.store).await, ["k:1", "k:2", "k:3"]);
    assert_eq!(only_parked(&setup).await.id, "9");
}

/// At the bound the rest of a key stays with its source, and nobody else does. Once its head is dealt with, all of them are
/// applied in order.
pub(crate) async fn only_so_many_are_parked_behind_one_key<F: EngineFixture>(setup: Setup<F>) {
    let is_mended = Arc::new(AtomicBool::new(false));
    let calls = Arc::default();
    for (key, is_discarded) in [("discarded", true), ("revived", false)] {
        let source = MemorySource::new();
        is_mended.store(false, SeqCst);
        let start = || {
            let is_mended = Arc::clone(&is_mended);
            let handler = failing::<F>(&calls, move |_, note| {
                let fails = note.text == format!("{key}:0") && !is_mended.load(SeqCst);
                fails.then(|| Failure::permanent("the case said so"))
            });
            ordered(&setup.store, &source).on("noted", handler).bounds(|bounds| bounds.parked_per_key_max = 3)
        };
        let free = format!("free-{key}");
        source.send_all((0..8).flat_map(|n| [in_order(key, n), in_order(&free, n)]));
        let full = async |seen: &Snapshot| seen.handled == 8 && seen.held_back > 0 && source.backlog() == 5;
        let seen = run_until(start(), "the rest stays where it is", full).await;
        assert_eq!((seen.dead, seen.parked_behind), (1, 2));
        let parked = [("0", DEAD), ("1", BEHIND), ("2", BEHIND)].map(|(n, state)| (format!("{key}{n}"), state));
        assert_eq!(states(&setup).await, parked);

        is_mended.store(true, SeqCst);
        deal_with_first(&setup, is_discarded).await;
        let expected: Vec<u32> = (u32::from(is_discarded)..8).collect();
        let all = async |seen: &Snapshot| seen.handled == expected.len() as u64 && source.backlog() == 0;
        run_until(start(), "all are applied", all).await;
        let applied = by_key(&F::effects(&setup.store).await);
        assert_eq!((&applied[key], &applied[&free]), (&expected, &(0..8).collect()));
        assert!(F::parked(&setup.store).await.is_empty());
    }
}
