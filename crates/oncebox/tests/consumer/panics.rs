//! Everything that is the user's code may panic. On a source without leases nothing brings back what a dead task held.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::{Class, Consumer, Context, Failure, OrderBy, Outcome, StoreError, StoreErrorKind};
use oncebox_testkit::store::Setup;

use super::rig::*;
use super::unleased::Unleased;

/// What an error of a case does when it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bomb {
    Source,
    Drop,
    Classified,
}

#[derive(Debug)]
struct Armed(Bomb);

impl fmt::Display for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("armed")
    }
}

impl Error for Armed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        assert_ne!(self.0, Bomb::Source, "the case said so");
        None
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        assert!(self.0 != Bomb::Drop || std::thread::panicking(), "the case said so");
    }
}

/// What a future holds that panics when it is dropped.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "the case said so");
    }
}

/// A batch that is rolled back drops the hooks of all its messages, and each of them panics.
pub(crate) async fn hooks_that_panic_when_they_are_dropped_harm_nobody<F: EngineFixture>(setup: Setup<F>) {
    let source = oncebox::memory::MemorySource::new();
    source.send_all((0..5).map(|n| note(&n.to_string(), &n.to_string())));
    let handler = |mut ctx: Context<F::Store>, note: Note| async move {
        for _ in 0..2 {
            let mine = Mine;
            ctx.after_commit(async move { std::mem::forget(mine) });
        }
        if note.text == "3" { Err(Failure::permanent("the case said so")) } else { Ok(Outcome::applied()) }
    };
    let one = consumer("c", &setup.store, source.clone()).lanes(1).on("noted", handler);
    let seen = run_dry(one, &source).await;
    assert_eq!((seen.handled, seen.dead), (4, 1), "{seen:?}");
}

/// Three messages of one order key and one of another.
fn messages() -> Vec<oncebox::Message> {
    [("1", "k"), ("2", "k"), ("3", "k"), ("4", "free")]
        .map(|(id, key)| note(id, &format!("{key}:{id}")).with_order_key(key))
        .into()
}

fn ordered<F: EngineFixture>(setup: &Setup<F>, source: &Unleased) -> Consumer<F::Store, Unleased> {
    consumer("c", &setup.store, source.clone()).order_by(OrderBy::MessageKey).lanes(2)
}

/// The first message is dead, what follows it waits behind it, the other key goes on, and nothing stays in between.
async fn first_is_dead<F: EngineFixture>(setup: &Setup<F>, source: &Unleased, consumer: Consumer<F::Store, Unleased>) {
    let settled = async |seen: &Snapshot| source.source.backlog() == 0 && seen.in_hand == 0;
    run_until(consumer, "everything is settled", settled).await;
    let expected = [("1", DEAD), ("2", BEHIND), ("3", BEHIND)].map(|(id, state)| (id.to_owned(), state));
    assert_eq!((states(setup).await, effects(setup).await), (expected.to_vec(), vec!["free:4".to_owned()]));
}

async fn an_error_explodes<F: EngineFixture>(setup: Setup<F>, bomb: Bomb) {
    let source = Unleased::new(messages());
    let armed = ordered(&setup, &source)
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| async move {
            F::write_effect(ctx.db(), &note.text).await?;
            if note.text == "k:1" { Err(Armed(bomb).into()) } else { Ok(Outcome::applied()) }
        })
        .classify::<Armed>(|armed| {
            assert_ne!(armed.0, Bomb::Classified, "the case said so");
            if armed.0 == Bomb::Source { Class::Transient } else { Class::Permanent }
        });
    first_is_dead(&setup, &source, armed).await;
}

pub(crate) async fn a_panic_while_an_error_is_classed_harms_only_its_message<F: EngineFixture>(setup: Setup<F>) {
    an_error_explodes(setup, Bomb::Classified).await;
}

pub(crate) async fn a_panic_in_the_source_of_an_error_harms_only_its_message<F: EngineFixture>(setup: Setup<F>) {
    an_error_explodes(setup, Bomb::Source).await;
}

pub(crate) async fn a_panic_while_an_error_is_dropped_harms_only_its_message<F: EngineFixture>(setup: Setup<F>) {
    an_error_explodes(setup, Bomb::Drop).await;
}

pub(crate) async fn a_panic_while_a_handler_is_dropped_harms_only_its_message<F: EngineFixture>(setup: Setup<F>) {
    let source = Unleased::new(messages());
    let mined = ordered(&setup, &source)
        .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            if note.text == "k:1" {
                let _mine = Mine;
                std::future::pending::<()>().await;
            }
            F::write_effect(ctx.db(), &note.text).await?;
            Ok(Outcome::applied())
        })
        .bounds(|bounds| bounds.handler_deadline = Duration::from_millis(50));
    first_is_dead(&setup, &source, mined).await;
}

/// What a task held that broke down goes back to its source, and is tried again in its order.
pub(crate) async fn a_broken_task_gives_its_messages_back<F: EngineFixture>(setup: Setup<F>) {
    let source = Unleased::new(messages());
    source.panic(1);
    let one = ordered(&setup, &source).on("noted", write::<F>).lanes(1);
    let done = async |seen: &Snapshot| seen.handled == 4 && source.source.backlog() == 0 && seen.in_hand == 0;
    run_until(one, "everything is applied", done).await;
    let effects = F::effects(&setup.store).await;
    assert_eq!(super::order::by_key(&effects)["k"], [1, 2, 3]);
    assert_eq!(effects.len(), 4);
    assert!(F::parked(&setup.store).await.is_empty(), "nobody is blamed for what happened once");
}

/// A message that breaks its task each time is parked, and holds up nobody but its key.
pub(crate) async fn a_message_that_always_breaks_its_task_is_parked<F: EngineFixture>(setup: Setup<F>) {
    let source = Unleased::new([note("1", "k:1").with_order_key("k")]);
    source.panic(usize::MAX);
    let one = ordered(&setup, &source).on("noted", write::<F>);
    run_until(one, "it is judged", async |seen| seen.failures > 0 && seen.in_hand == 0).await;
    assert!(effects(&setup).await.is_empty());
    // It can't even be parked, so it is still at its source.
    assert_eq!((source.source.backlog(), F::parked(&setup.store).await.len()), (1, 0));
    source.panic(0);
    let one = ordered(&setup, &source).on("noted", write::<F>);
    run_until(one, "it is applied", async |seen| seen.handled == 1 && source.source.backlog() == 0).await;
    assert_eq!(effects(&setup).await, ["k:1"]);
}

/// A handler that speaks to another store hears of leases there. They are none of ours.
pub(crate) async fn a_lease_lost_in_another_store_is_a_failure<F: EngineFixture>(setup: Setup<F>) {
    let source = Unleased::new(messages());
    let is_fenced = AtomicBool::new(true);
    let speaks = ordered(&setup, &source).on("noted", move |mut ctx: Context<F::Store>, note: Note| {
        let fenced = note.text == "k:1" && is_fenced.swap(false, SeqCst);
        async move {
            F::write_effect(ctx.db(), &note.text).await?;
            if fenced {
                let error = StoreError::new(StoreErrorKind::Fenced, "settle a row elsewhere", "it has a new owner");
                return Err::<_, Failure>(error.into());
            }
            Ok(Outcome::applied())
        }
    });
    let done = async |seen: &Snapshot| seen.handled == 4 && source.source.backlog() == 0 && seen.in_hand == 0;
    run_until(speaks, "everything is applied", done).await;
    assert_eq!(super::order::by_key(&F::effects(&setup.store).await)["k"], [1, 2, 3]);
}
