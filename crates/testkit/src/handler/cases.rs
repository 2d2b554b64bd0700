//! The cases. Each is a generic async function and one line in the list of [`handler_suite!`](crate::handler_suite).

use oncebox_core::crashpoint::Action;

use super::{Subject, Trial};
use crate::crash;
use crate::faults::Fault;

/// Without an effect that can be seen, the other cases would prove nothing.
pub async fn a_message_has_an_effect<S: Subject>(trial: Trial<S>) {
    let before = trial.state().await;
    trial.source.send(trial.subject.message());
    trial.consume_all().await;
    assert_ne!(trial.state().await, before, "the message changed nothing that `state` shows");
}

/// A message that comes again later, to another run of the consumer, changes nothing.
pub async fn a_sequential_duplicate_changes_nothing<S: Subject>(trial: Trial<S>) {
    for _ in 0..3 {
        trial.source.send(trial.subject.message());
        trial.consume_all().await;
    }
    trial.assert_as_if_once(&[trial.subject.message()]).await;
}

/// Sixteen deliveries at the same instant take effect once.
pub async fn concurrent_duplicates_take_effect_once<S: Subject>(trial: Trial<S>) {
    trial.source.send_all((0..16).map(|_| trial.subject.message()));
    trial.consume_all().await;
    trial.assert_as_if_once(&[trial.subject.message()]).await;
}

/// Two messages are two effects, however often they come.
pub async fn distinct_messages_both_take_effect<S: Subject>(trial: Trial<S>) {
    let (one, other) = (trial.subject.message(), trial.subject.another());
    for message in [&one, &other, &one, &other] {
        trial.source.send(message.clone());
        trial.consume_all().await;
    }
    let only_one = trial.after_once(std::slice::from_ref(&one)).await;
    assert_ne!(trial.state().await, only_one, "the second message changed nothing: is the key too broad?");
    trial.assert_as_if_once(&[one, other]).await;
}

/// Committed and not acknowledged: the broker delivers again.
pub async fn a_crash_after_the_commit_and_before_the_ack_heals<S: Subject>(trial: Trial<S>) {
    trial.source.send(trial.subject.message());
    trial.faults.fail("ack", Fault::Lost, 2);
    trial.consume_all().await;
    trial.assert_as_if_once(&[trial.subject.message()]).await;
}

/// Everything done and nothing committed: it is done again.
pub async fn a_crash_before_the_commit_heals<S: Subject>(trial: Trial<S>) {
    fails_at("before-commit", trial).await;
}

/// The key claimed and nothing else done.
pub async fn a_crash_after_the_claim_heals<S: Subject>(trial: Trial<S>) {
    fails_at("claimed", trial).await;
}

/// The handler returned and nothing else done.
pub async fn a_crash_after_the_handler_heals<S: Subject>(trial: Trial<S>) {
    fails_at("handled", trial).await;
}

async fn fails_at<S: Subject>(point: &str, trial: Trial<S>) {
    trial.source.send_all([trial.subject.message(), trial.subject.message()]);
    crash::arm(point, Action::Fail, 1).expect("the engine has this crash point");
    trial.consume_all().await;
    assert_eq!(crash::still_armed(), 0, "the consumer never passed crash point {point}, so nothing is proven");
    trial.assert_as_if_once(&[trial.subject.message()]).await;
}

/// The same intent under another id is a business duplicate.
pub async fn the_same_intent_under_another_id_changes_nothing<S: Subject>(trial: Trial<S>) {
    let Some(again) = trial.subject.same_intent() else { return };
    for message in [trial.subject.message(), again.clone(), again] {
        trial.source.send(message);
        trial.consume_all().await;
    }
    trial.assert_as_if_once(&[trial.subject.message()]).await;
}
