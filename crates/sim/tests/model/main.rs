//! Claim, lease and fence, checked in every interleaving of a small system, and the same without one of them: then the
//! checker must find the way in which it breaks.

mod machine;

use machine::{Claims, Machine, Rules, Settles, Trouble, Unknown};
use stateright::{Checker, Model};

/// What Oncebox does on its own queue.
const QUEUE: Rules =
    Rules { claims: Claims::InTransaction, settles: Settles::InTransaction, unknown: Unknown::LookedUp, fenced: true };

/// What it does on a broker, which knows nothing of the store.
const BROKER: Rules = Rules { settles: Settles::AfterCommit, ..QUEUE };

fn machine(workers: usize, messages: usize, rules: Rules) -> Machine {
    // Two messages multiply the states; what they can do to each other takes less trouble.
    let trouble = match messages {
        1 => Trouble { crashes: 1, expiries: 2, lost_answers: 2, failures: 1 },
        _ => Trouble { crashes: 1, expiries: 1, lost_answers: 1, failures: 0 },
    };
    Machine { workers, messages, rules, trouble }
}

/// Looks at every state and says which properties failed.
fn broken(machine: Machine) -> Vec<&'static str> {
    let checker = machine.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    assert!(checker.unique_state_count() > 1_000, "{} states", checker.unique_state_count());
    let discoveries = checker.discoveries();
    let properties = machine.properties();
    let failed = properties.iter().filter(|property| match property.expectation {
        stateright::Expectation::Sometimes => false,
        _ => discoveries.contains_key(property.name),
    });
    failed.map(|property| property.name).collect()
}

/// Everything holds, and everything that can happen does.
fn holds(machine: Machine, never: &[&str]) {
    let checker = machine.checker().threads(2).spawn_bfs().join();
    let discoveries = checker.discoveries();
    for property in machine.properties() {
        let found = discoveries.get(property.name);
        match property.expectation {
            stateright::Expectation::Sometimes => {
                assert_eq!(found.is_none(), never.contains(&property.name), "{}", property.name);
            }
            _ => assert!(found.is_none(), "{}: {}", property.name, found.map(ToString::to_string).unwrap_or_default()),
        }
    }
}

#[test]
fn a_queue_applies_each_message_once_whatever_comes() {
    holds(machine(3, 1, QUEUE), &[]);
    holds(machine(2, 2, QUEUE), &[]);
}

#[test]
fn a_broker_applies_each_message_once_whatever_comes() {
    // A broker has no fence: its duplicates are the inbox's to find.
    let never = ["a stale worker is fenced"];
    holds(machine(2, 1, BROKER), &never);
    holds(machine(2, 2, BROKER), &never);
    // Without a fence more goes on side by side: a million states with the trouble of the others.
    let trouble = Trouble { crashes: 1, expiries: 2, lost_answers: 1, failures: 0 };
    holds(Machine { trouble, ..machine(3, 1, BROKER) }, &never);
}

#[test]
fn a_queue_s_fence_alone_is_enough_for_what_it_settles_in_its_transaction() {
    let unclaimed = Rules { claims: Claims::Never, ..QUEUE };
    holds(machine(3, 1, unclaimed), &["a duplicate is found"]);
}

#[test]
fn without_a_fence_a_worker_that_lost_its_lease_commits() {
    // The inbox still sees to it that nothing takes effect twice.
    let unfenced = Rules { fenced: false, ..QUEUE };
    assert_eq!(broken(machine(3, 1, unfenced)), ["only the holder commits"]);
}

#[test]
fn without_a_claim_a_broker_s_redelivery_takes_effect_twice() {
    let unclaimed = Rules { claims: Claims::Never, ..BROKER };
    assert_eq!(broken(machine(2, 1, unclaimed)), ["no effect twice"]);
}

#[test]
fn acknowledged_before_the_commit_a_message_is_lost() {
    let early = Rules { settles: Settles::BeforeCommit, ..QUEUE };
    assert_eq!(broken(machine(2, 1, early)), ["settled implies effect"]);
}

#[test]
fn claimed_outside_the_transaction_a_message_is_lost() {
    for rules in [QUEUE, BROKER] {
        let outside = Rules { claims: Claims::Outside, ..rules };
        assert_eq!(broken(machine(2, 1, outside)), ["settled implies effect", "a record implies an effect"]);
    }
}

#[test]
fn a_lost_commit_taken_for_done_loses_its_message() {
    let trusting = Rules { unknown: Unknown::Done, ..BROKER };
    assert_eq!(broken(machine(2, 1, trusting)), ["settled implies effect"]);
}
