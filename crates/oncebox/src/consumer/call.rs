//! One call of a handler: its deadline, its panics, and getting the transaction back.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use oncebox_core::store::Transaction;
use oncebox_core::{ConsumerId, Failure, Message, Outcome, Store};

use crate::context::{Context, Hook};
use crate::handler::{Call, Outcomes};

/// How a call ended.
pub(super) enum Ran<S: Store> {
    /// The handler finished; the transaction is here to go on with.
    Done { tx: S::Tx, outcomes: Vec<Outcome>, hooks: Vec<Hook> },
    /// It failed, and the transaction is here to be rolled back.
    Failed { tx: S::Tx, failure: Failure },
    /// It was stopped in the middle of something; its transaction must be laid to rest first.
    Stopped { doubt: S::Doubt, failure: Failure },
    /// It kept the transaction. Nothing can be committed.
    Kept { failure: Failure },
}

pub(super) async fn run<S: Store>(
    tx: S::Tx,
    call: Call<S>,
    messages: Arc<[Arc<Message>]>,
    consumer: ConsumerId,
    deadline: Duration,
) -> Ran<S> {
    let expected = messages.len();
    let (context, home) = Context::new(tx, messages, consumer);
    // The inner block drops the handler's future, and with it the context, before the transaction is looked for.
    let end = {
        match catch_unwind(AssertUnwindSafe(|| call(context))) {
            Err(_) => End::Panicked,
            Ok(mut future) => {
                let guarded = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                    Ok(Poll::Ready(result)) => Poll::Ready(End::Returned(result)),
                    Ok(Poll::Pending) => Poll::Pending,
                    Err(_) => Poll::Ready(End::Panicked),
                });
                tokio::time::timeout(deadline, guarded).await.unwrap_or(End::TimedOut)
            }
        }
    };
    let Some((tx, hooks)) = home.take() else {
        let failure = match end {
            End::Returned(Err(failure)) => failure,
            _ => Failure::permanent("its handler kept the context beyond its end, so nothing can be committed"),
        };
        return Ran::Kept { failure };
    };
    match end {
        End::Panicked => Ran::Stopped { doubt: tx.abandon(), failure: Failure::permanent("its handler panicked") },
        End::TimedOut => {
            let failure = Failure::transient(format!("its handler took longer than {deadline:?}"));
            Ran::Stopped { doubt: tx.abandon(), failure }
        }
        End::Returned(Err(failure)) => Ran::Failed { tx, failure },
        End::Returned(Ok(outcomes)) => {
            if let Err(error) = tx.alive() {
                return Ran::Failed { tx, failure: error.into() };
            }
            match outcomes {
                Outcomes::Applied => Ran::Done { tx, outcomes: vec![Outcome::applied(); expected], hooks },
                Outcomes::Each(outcomes) if outcomes.len() == expected => Ran::Done { tx, outcomes, hooks },
                Outcomes::Each(outcomes) => {
                    let got = outcomes.len();
                    let why = format!("its batch handler returned {got} outcomes for {expected} messages");
                    Ran::Failed { tx, failure: Failure::permanent(why) }
                }
            }
        }
    }
}

enum End {
    Returned(Result<Outcomes, Failure>),
    Panicked,
    TimedOut,
}
