//! What happens to a message that failed alone.

use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::parked::{Cause, Verdict, Waits};
use oncebox_core::{Class, Failure, Message, Source, Timestamp};

use super::Engine;
use super::work::Work;

/// The longest reason that is kept.
const REASON_MAX: usize = 1_000;

/// Decides from the class of a failure, the policy of the message's type, and what is known of earlier tries.
pub(super) fn judge<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    work: &Work<S, Src::Receipt>,
    failure: &Failure,
) -> Verdict {
    let message = &*work.delivery.message;
    let class = failure.class().unwrap_or(Class::Transient);
    let before = work.delivery.parked.as_ref().map_or(0, |parked| parked.attempts);
    let attempts = before.saturating_add(1);
    let parked = work.delivery.parked.as_ref();
    let age = parked.map_or(Duration::ZERO, |parked| age(engine.clock.now(), parked.since));
    let retry = engine.retries.of(&message.kind);
    let waits = match class {
        Class::Transient => {
            let wait = retry.wait(attempts, age, failure.wait(), engine.clock.random());
            wait.map_or(Waits::Person, Waits::Retry)
        }
        // Tried again, it might happen a second time: someone has to look first.
        _ => Waits::Person,
    };
    Verdict { waits, class: Some(class), cause: cause(message, class, failure), reason: reason(failure), attempts }
}

/// None if clocks disagree.
pub(super) fn age(now: Timestamp, since: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// The message did nothing wrong: something of its order key is before it.
pub(super) fn behind(message: &Message) -> Verdict {
    Verdict {
        waits: Waits::Turn,
        class: None,
        cause: Cause::new(None, &message.kind, "behind"),
        reason: "an earlier message of its order key is parked".to_owned(),
        attempts: 0,
    }
}

fn cause(message: &Message, class: Class, failure: &Failure) -> Cause {
    Cause::new(Some(class), &message.kind, &failure.cause_code())
}

fn reason(failure: &Failure) -> String {
    let mut reason = failure.reason().to_owned();
    if reason.len() > REASON_MAX {
        let end = (0..=REASON_MAX).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason_of = |text: String| reason(&Failure::permanent(text));
        assert_eq!(reason_of("a".repeat(REASON_MAX)), "a".repeat(REASON_MAX));
        assert_eq!(reason_of("a".repeat(REASON_MAX + 1)), format!("{}…", "a".repeat(REASON_MAX)));
        let cut = "a".repeat(REASON_MAX - 1);
        assert_eq!(reason_of(format!("{cut}€")), format!("{cut}…"), "within a character of three bytes");
    }
}
