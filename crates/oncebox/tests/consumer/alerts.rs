//! What a consumer tells its owner: what is dead, and what is missing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Class, Context, Dead, Failure, Gap, Message, Missing, Outcome, Versioned};
use oncebox_testkit::store::Setup;

use super::rig::*;

type Told<T> = Arc<Mutex<Vec<T>>>;

pub(crate) async fn the_owner_is_told_of_what_is_dead_once_it_is<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let unreadable = Message::new("nobody.knows").with_id(note("3", "").id.unwrap());
    source.send_all([note("1", "CANARY"), note("2", "tried"), unreadable, note("4", "fine")]);
    let told: Told<(Dead, bool)> = Arc::default();
    let (tells, store) = (Arc::clone(&told), setup.store.clone());
    let failing = |_: Context<F::Store>, note: Note| async move {
        match note.text.as_str() {
            "CANARY" => Err(Failure::permanent("no such account").code("no-account")),
            "tried" => Err(refuse()),
            _ => Ok(Outcome::applied()),
        }
    };
    let alerting = consumer("c", &setup.store, source.clone())
        .on("noted", failing)
        .retry(at_once(2))
        // A hook that panics harms nobody.
        .on_dead(|dead| async move { assert!(dead.consumer.is_empty(), "the case said so") })
        .on_dead(move |dead| {
            let (tells, store) = (Arc::clone(&tells), store.clone());
            async move {
                let is_parked = F::parked(&store).await.iter().any(|row| row.id == dead.message && row.state == DEAD);
                tells.lock().unwrap().push((dead, is_parked));
            }
        })
        .lanes(1);
    let settled = async |seen: &Snapshot| seen.dead == 3 && seen.handled == 1 && seen.in_hand == 0;
    run_until(alerting, "three are dead", settled).await;
    let mut told = told.lock().unwrap().clone();
    told.sort_by(|(one, _), (other, _)| one.message.cmp(&other.message));
    assert!(told.iter().all(|(_, is_parked)| *is_parked), "told before it was so: {told:?}");
    assert!(!format!("{told:?}").contains("CANARY"), "{told:?}");
    let said: Vec<_> = told.iter().map(|(dead, _)| (dead.message.as_str(), dead.class, dead.attempts)).collect();
    let (permanent, transient) = (Some(Class::Permanent), Some(Class::Transient));
    assert_eq!(said, [("1", permanent, 1), ("2", transient, 2), ("3", permanent, 1)]);
    let first = &told[0].0;
    assert_eq!((first.consumer.as_str(), first.kind.as_str(), first.order_key.as_deref()), ("c", "noted", None));
    assert_eq!((first.reason.as_str(), first.cause.as_str()), ("no such account", "permanent/noted/no-account"));
}

pub(crate) async fn what_is_missing_is_asked_for_before_it_is_given_up<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let version = |aggregate: &str, n: u64| {
        note(&format!("{aggregate}{n}"), &format!("{aggregate}{n}")).with_order_key(aggregate).with_version(n)
    };
    let (asked, told): (Told<Missing>, Told<Dead>) = Default::default();
    let minute = Duration::from_secs(60);
    let start = || {
        let (asks, tells, again) = (Arc::clone(&asked), Arc::clone(&told), source.clone());
        consumer("c", &setup.store, source.clone())
            .on("noted", write::<F>)
            .versioned(Versioned::by_order_key().on_gap(Gap::Wait { time: minute, messages: 100 }))
            .on_missing(move |missing| {
                // Of the two aggregates one can be had again.
                if missing.aggregate == "a" {
                    again.send_all((missing.from..missing.before).map(|n| version("a", n)));
                }
                asks.lock().unwrap().push(missing);
                async {}
            })
            .on_dead(move |dead| {
                tells.lock().unwrap().push(dead);
                async {}
            })
            .clock(setup.clock.clone())
    };
    source.send_all([version("a", 1), version("a", 4), version("b", 2)]);
    let waiting = async |seen: &Snapshot| seen.handled == 1 && seen.gaps >= 2 && seen.in_hand == 0;
    run_until(start(), "two wait", waiting).await;
    assert!(asked.lock().unwrap().is_empty(), "it is not time yet");

    setup.advance(minute + Duration::from_secs(1)).await;
    let closed = async |seen: &Snapshot| seen.handled == 3 && seen.in_hand == 0 && asked.lock().unwrap().len() >= 2;
    run_until(start(), "one gap is closed", closed).await;
    let mut found: Vec<_> = asked.lock().unwrap().iter().map(|m| (m.aggregate.clone(), m.from, m.before)).collect();
    found.sort();
    found.dedup();
    assert_eq!(found, [("a".to_owned(), 2, 4), ("b".to_owned(), 1, 2)]);
    assert_eq!(states(&setup).await, [("b2".to_owned(), GAP)], "it waits once more");

    setup.advance(minute).await;
    run_until(start(), "the other is given up", async |seen| seen.dead == 1 && seen.in_hand == 0).await;
    assert_eq!(effects(&setup).await, ["a1", "a2", "a3", "a4"]);
    let dead = only_parked(&setup).await;
    assert_eq!((dead.id.as_str(), dead.state, dead.cause.as_str()), ("b2", DEAD, "permanent/noted/gap"));
    let told: Vec<_> = told.lock().unwrap().iter().map(|dead| (dead.message.clone(), dead.reason.clone())).collect();
    assert_eq!(told, [("b2".to_owned(), "version 1 of its aggregate is missing".to_owned())]);
}
