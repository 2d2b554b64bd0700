//! Messages from before the horizon: where nobody can tell whether they were applied, a person has to.

use std::sync::{Arc, Mutex};

use oncebox::claim::Claim;
use oncebox::horizon::Expiry;
use oncebox::memory::MemorySource;
use oncebox::{
    Class, Clock, Consumer, ConsumerName, Context, KeyStrategy, Message, OrderBy, Outcome, Scope, Versioned,
};
use oncebox_testkit::store::Setup;

use super::rig::*;

/// A message as its producer made it in the middle of this year.
fn made_in(year: i16, mut message: Message) -> Message {
    message.time = format!("{year}-07-01T00:00:00Z").parse().unwrap();
    message
}

fn long_ago(id: &str, text: &str) -> Message {
    made_in(2020, note(id, text))
}

fn by_the_clock<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    consumer("c", &setup.store, source.clone()).on("noted", write::<F>).clock(setup.clock.clone()).lanes(1)
}

pub(crate) async fn what_was_forgotten_is_parked_and_not_applied_again<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(long_ago("1", "CANARY"));
    run_dry(by_the_clock(&setup, &source), &source).await;
    let horizon = forget(&setup, 10).await;
    // Twice at once, and once more later.
    source.send_all([long_ago("1", "CANARY"), long_ago("1", "CANARY")]);
    let seen = run_dry(by_the_clock(&setup, &source), &source).await;
    assert_eq!((seen.handled, seen.dead, seen.transport_duplicates), (0, 1, 1));
    source.send(long_ago("1", "CANARY"));
    let seen = run_dry(by_the_clock(&setup, &source), &source).await;
    assert_eq!((seen.handled, seen.dead, seen.too_old, seen.transport_duplicates), (0, 0, 1, 1));
    assert_eq!((effects(&setup).await.len(), source.backlog()), (1, 0));
    let row = only_parked(&setup).await;
    assert_eq!((row.state, row.class, row.cause.as_str()), (DEAD, Some(Class::Permanent), "permanent/noted/too-old"));
    let says = format!(
        "it was made at 2020-07-01T00:00:00Z, and c looks back no further than {horizon}, so nobody can tell whether it \
         was applied; replay it by force if you know that it was not"
    );
    assert_eq!(row.reason, says);
}

pub(crate) async fn what_cannot_have_been_forgotten_is_applied<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    // Nothing was deleted yet: whatever its age, it was never here.
    source.send_all([long_ago("1", "a"), long_ago("2", "b")]);
    let seen = run_dry(by_the_clock(&setup, &source), &source).await;
    assert_eq!((seen.handled, seen.too_old), (2, 0));
    forget(&setup, 1).await;
    // Of the two one record is left, and answers its duplicate.
    source.send_all([long_ago("1", "a"), long_ago("2", "b")]);
    let seen = run_dry(by_the_clock(&setup, &source), &source).await;
    assert_eq!((seen.handled, seen.too_old, seen.transport_duplicates), (0, 1, 1));
    // Made after the horizon, made just now, and one whose broker tells no time: that of its arrival is taken.
    let now = setup.clock.now();
    let untimed = Message::received("noted", note("5", "e").payload, now);
    let mut young = note("4", "d");
    young.time = now;
    source.send_all([made_in(2090, note("3", "c")), young, untimed.with_id(note("5", "e").id.unwrap())]);
    let seen = run_dry(by_the_clock(&setup, &source), &source).await;
    assert_eq!((seen.handled, seen.too_old), (3, 0));
    assert_eq!(effects(&setup).await, ["a", "b", "c", "d", "e"]);
}

pub(crate) async fn what_is_too_old_is_parked_in_its_place<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(long_ago("0", "long ago"));
    run_dry(by_the_clock(&setup, &source), &source).await;
    forget(&setup, 10).await;
    let young = |id: &str| made_in(2090, note(id, id)).with_order_key("k");
    let old = |id: &str| long_ago(id, id).with_order_key("k");
    source.send_all([young("1"), old("2"), young("3"), old("4"), young("5")]);
    let ordered = by_the_clock(&setup, &source).order_by(OrderBy::MessageKey).order_was(OrderBy::Nothing);
    let done = async |seen: &oncebox::consumer::Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    run_until(ordered, "all have their place", done).await;
    assert_eq!(effects(&setup).await, ["1", "long ago"]);
    let expected = [("2", DEAD), ("3", BEHIND), ("4", DEAD), ("5", BEHIND)];
    assert_eq!(states(&setup).await, expected.map(|(id, state)| (id.to_owned(), state)));
}

/// A version tells whether its message was applied, however long ago that was.
pub(crate) async fn what_has_a_version_is_known_by_it<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let version = |n: u64| long_ago(&n.to_string(), &n.to_string()).with_order_key("a").with_version(n);
    let versioned = || by_the_clock(&setup, &source).versioned(Versioned::by_order_key());
    source.send_all([version(1), version(2)]);
    run_dry(versioned(), &source).await;
    forget(&setup, 10).await;
    source.send_all([version(1), version(2), version(3)]);
    let seen = run_dry(versioned(), &source).await;
    assert_eq!((seen.stale, seen.same_version, seen.handled, seen.too_old), (1, 1, 1, 0));
    assert_eq!(effects(&setup).await, ["1", "2", "3"]);
}

/// Consumers with global keys share their records, and what was forgotten of those.
pub(crate) async fn what_was_forgotten_of_shared_records_is_parked<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let global = || by_the_clock(&setup, &source).scope(Scope::Global);
    source.send(long_ago("1", "a"));
    run_dry(global(), &source).await;
    forget_of(&setup, &ConsumerName::global(), |shared, before| Expiry::first(shared, before, 10)).await;
    source.send(long_ago("1", "a"));
    let seen = run_dry(global(), &source).await;
    assert_eq!((seen.handled, seen.too_old, effects(&setup).await.len()), (0, 1, 1));
    // Nothing was ever forgotten of a consumer's own records: whatever its age, what has none there is new.
    let other = MemorySource::new();
    other.send(long_ago("2", "b"));
    let own = consumer("own", &setup.store, other.clone()).on("noted", write::<F>).clock(setup.clock.clone());
    assert_eq!(run_dry(own, &other).await.handled, 1);
}

/// A producer that sends the same intent again makes a young message of it. Its business key is archived.
pub(crate) async fn what_the_archive_knows_is_a_duplicate_for_who_asks_it<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let business = || by_the_clock(&setup, &source).business_key(KeyStrategy::template("{text}").unwrap());
    source.send_all([long_ago("1", "a"), long_ago("2", "b")]);
    run_dry(business(), &source).await;
    let archived = |consumer, before| Expiry::first(consumer, before, 10).archiving();
    forget_of(&setup, &ConsumerName::new("c").unwrap(), archived).await;
    // One again as it was, one under another id and with another time, and one that is new.
    let again = [long_ago("1", "a"), made_in(2099, note("3", "b")), made_in(2099, note("4", "d"))];
    source.send_all(again);
    let seen = run_dry(business().ask_archive(), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates, seen.business_duplicates), (1, 1, 1));
    assert_eq!((seen.too_old, effects(&setup).await), (0, ["a", "b", "d"].map(str::to_owned).to_vec()));
    // Who does not ask has it again, and a person has the other.
    source.send_all([long_ago("2", "b"), made_in(2099, note("5", "a"))]);
    let seen = run_dry(business(), &source).await;
    assert_eq!((seen.handled, seen.too_old), (1, 1));
}

/// An operation is remembered as long as records are, or as long as keys are archived.
pub(crate) async fn an_operation_that_expired_is_known_by_the_archive<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let answers: Arc<Mutex<Vec<(bool, bool)>>> = Arc::default();
    let heard = Arc::clone(&answers);
    let operates = move |mut ctx: Context<F::Store>, note: Note| {
        let heard = Arc::clone(&heard);
        async move {
            let ever = ctx.apply_once_ever("account-7", &note.text).await? == Claim::Fresh;
            let once = ctx.apply_once("account-7", &note.text).await? == Claim::Fresh;
            heard.lock().unwrap().push((ever, once));
            Ok(Outcome::applied())
        }
    };
    let run = async |id: &str| {
        source.send(made_in(2099, note(id, "close")));
        let operating = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone());
        run_dry(operating.on("noted", operates.clone()), &source).await;
    };
    run("1").await;
    let archived = |consumer, before| Expiry::first(consumer, before, 10).archiving();
    forget_of(&setup, &ConsumerName::new("c").unwrap(), archived).await;
    run("2").await;
    assert_eq!(*answers.lock().unwrap(), [(true, false), (false, true)], "the archive knows it, records do not");
}
