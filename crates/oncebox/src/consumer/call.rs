//! One call of a handler: its deadline, its panics, and getting the transaction back.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::store::Transaction;
use oncebox_core::{Clock, ConsumerId, Failure, Message, Outcome, Outgoing, Store, StoreErrorKind};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::guard::{self, Guarded, Panicked};
use super::seconds::Seconds;
use crate::context::{Context, Hook, Left};
use crate::handler::{Call, Outcomes};
use crate::trace::Processing;

/// How a call ended.
pub(super) enum Ran<S: Store> {
    /// The handler finished; the transaction is here to go on with.
    Done { tx: S::Tx, outcomes: Vec<Outcome>, left: Gathered },
    /// It failed, and the transaction is here to be rolled back.
    Failed { tx: S::Tx, failure: Failure },
    /// It was stopped in the middle of something; its transaction must be laid to rest first.
    Stopped { doubt: S::Doubt, failure: Failure },
    /// It kept the transaction. Nothing can be committed.
    Kept { failure: Failure },
}

/// What handlers leave behind beside their writes: for after the commit, and for the outbox.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) hooks: Vec<Hook>,
    pub(super) outgoing: Vec<Outgoing>,
    /// Of the calls that were made; they end with the transaction.
    pub(super) processing: Vec<Processing>,
}

impl Gathered {
    pub(super) fn add(&mut self, more: Self) {
        self.hooks.extend(more.hooks);
        self.outgoing.extend(more.outgoing);
        self.processing.extend(more.processing);
    }

    /// How much there is, to come back to.
    pub(super) fn size(&self) -> (usize, usize, usize) {
        (self.hooks.len(), self.outgoing.len(), self.processing.len())
    }

    /// What came later was undone.
    pub(super) fn cut(&mut self, (hooks, outgoing, processing): (usize, usize, usize)) {
        self.hooks.truncate(hooks);
        self.outgoing.truncate(outgoing);
        self.processing.truncate(processing);
    }
}

/// Whose call it is.
#[derive(Clone, Copy)]
pub(super) struct Caller<'e> {
    pub(super) consumer: ConsumerId,
    pub(super) deadline: Duration,
    pub(super) clock: &'e dyn Clock,
    /// Its messages are claimed, so that it runs once.
    pub(super) claims: bool,
    /// Where it is noted how long it took.
    pub(super) seconds: &'e Seconds,
}

/// Turns events into what is published.
fn gather(
    left: Left,
    cause: Option<&Message>,
    processing: &Processing,
    caller: Caller<'_>,
) -> Result<Gathered, Failure> {
    // Nobody pays for a trace of nothing.
    let trace = if left.events.is_empty() { None } else { processing.context() };
    let outgoing = Vec::with_capacity(left.events.len());
    let mut gathered = Gathered { hooks: left.hooks, outgoing, processing: Vec::new() };
    for event in left.events {
        if !caller.claims && !event.has_id() {
            let why = "its handler has no claim, and emits an event without an id of its own: each time that it runs, \
                       another event would be published; give the event an id, or register the handler with `on`";
            return Err(Failure::permanent(why));
        }
        let made = event.made_in(caller.clock, cause, trace.as_ref());
        gathered.outgoing.push(made.map_err(|error| Failure::permanent(format!("cannot emit an event: {error}")))?);
    }
    Ok(gathered)
}

pub(super) async fn run<S: Store>(
    tx: S::Tx,
    call: Call<S>,
    messages: Arc<[Arc<Message>]>,
    caller: Caller<'_>,
    processing: &Processing,
) -> Ran<S> {
    let (expected, deadline) = (messages.len(), caller.deadline);
    // Of a batch no single message is the cause.
    let cause = if expected == 1 { messages.first().cloned() } else { None };
    let (context, home) = Context::new(tx, messages, caller.consumer);
    let began = Instant::now();
    // The handler's future is dropped, and with it the context, before the transaction is looked for.
    let end = match guard::call(|| call(context)) {
        Err(Panicked) => End::Panicked,
        Ok(future) => {
            let mut guarded = Guarded::new(future);
            let end = match tokio::time::timeout(deadline, (&mut guarded).instrument(processing.span())).await {
                Err(_) => End::TimedOut,
                Ok(Ok(result)) => End::Returned(result),
                Ok(Err(Panicked)) => End::Panicked,
            };
            match guarded.end() {
                Ok(()) => end,
                Err(Panicked) => {
                    // Its error is the user's too.
                    let _ = guard::call(|| drop(end));
                    End::Panicked
                }
            }
        }
    };
    caller.seconds.add(began.elapsed());
    let Some((tx, left)) = home.take() else {
        let failure = match end {
            End::Returned(Err(failure)) => failure,
            _ => Failure::permanent("its handler kept the context beyond its end, so nothing can be committed"),
        };
        return Ran::Kept { failure };
    };
    match end {
        End::Panicked => stopped(tx, Failure::permanent("its handler panicked")).await,
        End::TimedOut => stopped(tx, Failure::transient(format!("its handler took longer than {deadline:?}"))).await,
        End::Returned(Err(failure)) => Ran::Failed { tx, failure },
        End::Returned(Ok(outcomes)) => {
            if let Err(error) = tx.alive() {
                return Ran::Failed { tx, failure: error.into() };
            }
            let left = match gather(left, cause.as_deref(), processing, caller) {
                Ok(left) => left,
                Err(failure) => return Ran::Failed { tx, failure },
            };
            match outcomes {
                Outcomes::Applied => Ran::Done { tx, outcomes: vec![Outcome::applied(); expected], left },
                Outcomes::Each(outcomes) if outcomes.len() == expected => Ran::Done { tx, outcomes, left },
                Outcomes::Each(outcomes) => {
                    let got = outcomes.len();
                    let why = format!("its batch handler returned {got} outcomes for {expected} messages");
                    Ran::Failed { tx, failure: Failure::permanent(why) }
                }
            }
        }
    }
}

/// How long a session that was left in the middle of something is asked what became of its transaction.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A handler that was stopped left its session wherever it was, so that is given up. Before that it is asked whether the
/// handler ran COMMIT itself: then claims of messages that never ran are committed, and whoever goes on would take them
/// for duplicates.
async fn stopped<S: Store>(mut tx: S::Tx, failure: Failure) -> Ran<S> {
    match tokio::time::timeout(LOOK_MAX, tx.verify()).await {
        Ok(Err(error)) if error.kind() == StoreErrorKind::Breached => Ran::Failed { tx, failure },
        _ => Ran::Stopped { doubt: tx.abandon(), failure },
    }
}

enum End {
    Returned(Result<Outcomes, Failure>),
    Panicked,
    TimedOut,
}
