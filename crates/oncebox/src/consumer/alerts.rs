//! What a consumer tells its owner: that a message is dead, or that a version is missing.
//!
//! Told after the commit that made it so, by the process that did it, each in a task of its own that may take
//! `Bounds::hook_deadline`. Best effort: a process that dies in between tells nobody, and the parked message is what
//! remains. Neither a payload nor a header is told.

use std::fmt;
use std::sync::Arc;

use oncebox_core::parked::{Cause, Verdict, Waits};
use oncebox_core::{Class, Message};

use super::guard::Guarded;
use crate::context::{BoxFuture, Hook};

/// A message that was set aside for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dead {
    /// Whose it is.
    pub consumer: String,
    /// Its id, or its type where it has none.
    pub message: String,
    /// Its type.
    pub kind: String,
    /// Its order key, which waits for it where order is kept.
    pub order_key: Option<String>,
    /// The class of its failure.
    pub class: Option<Class>,
    /// What failures of one cause have in common.
    pub cause: Cause,
    /// Why, in words without payload or secrets.
    pub reason: String,
    /// How often its handler was run and failed.
    pub attempts: u32,
}

/// Versions that a message has waited for in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Whose message waits.
    pub consumer: String,
    /// Of what versions are missing.
    pub aggregate: String,
    /// The first missing version.
    pub from: u64,
    /// The version that waits: those before it are missing, unless they wait as well.
    pub before: u64,
}

type Tell<T> = Arc<dyn Fn(T) -> BoxFuture<()> + Send + Sync>;

/// Whom to tell.
#[derive(Clone, Default)]
pub(super) struct Alerts {
    pub(super) on_dead: Vec<Tell<Dead>>,
    pub(super) on_missing: Vec<Tell<Missing>>,
}

impl Alerts {
    /// Tells of a message with this verdict, if it is dead.
    pub(super) fn verdict(&self, consumer: &str, message: &Message, verdict: &Verdict) -> Vec<Hook> {
        if self.on_dead.is_empty() || !matches!(verdict.waits, Waits::Person | Waits::Missing) {
            return Vec::new();
        }
        let dead = Dead {
            consumer: consumer.to_owned(),
            message: message.label().to_string(),
            kind: message.kind.clone(),
            order_key: message.order_key.clone(),
            class: verdict.class,
            cause: verdict.cause.clone(),
            reason: verdict.reason.clone(),
            attempts: verdict.attempts,
        };
        tell(&self.on_dead, &dead)
    }

    /// Tells of versions that are missing.
    pub(super) fn missing(&self, missing: &Missing) -> Vec<Hook> {
        tell(&self.on_missing, missing)
    }

    /// Whether somebody may fetch what is missing.
    pub(super) fn has_fetcher(&self) -> bool {
        !self.on_missing.is_empty()
    }
}

/// The call itself is the user's code and may panic: it is made in the task that runs the hook.
fn tell<T: Clone + Send + 'static>(whom: &[Tell<T>], what: &T) -> Vec<Hook> {
    let hook = |tell: &Tell<T>| -> Hook {
        let (tell, what) = (Arc::clone(tell), what.clone());
        Guarded::new(Box::pin(async move { tell(what).await }))
    };
    whom.iter().map(hook).collect()
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alerts").finish_non_exhaustive()
    }
}
