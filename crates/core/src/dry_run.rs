//! Dry runs: the handler of a parked message runs, and nothing of it is kept.
//!
//! An operator asks before a replay what would become of a message; only the consumer, which has the handler, can tell.
//! This is the seam between the two: whoever operates knows no handler, and the consumer knows no operator.

use std::future::Future;
use std::pin::Pin;

use crate::error::StoreError;
use crate::outcome::OutcomeKind;
use crate::parked::Verdict;
use crate::quarantine::ParkedRow;

/// Who has the handler of a consumer and can run it without effect in the store.
pub trait DryRun: Send + Sync {
    /// Runs the handler over a dead message as a replay would, in a transaction that is rolled back whatever happens.
    /// Nothing is acknowledged, and no hook runs. A call that the handler makes to the outside *is* made.
    ///
    /// An error says nothing about the message: the store was away, or others were in the way for too long.
    fn dry_run<'r>(&'r self, row: &'r ParkedRow) -> DryRunFuture<'r>;
}

/// What [`DryRun::dry_run`] returns: boxed, so that an operator takes any consumer.
pub type DryRunFuture<'r> = Pin<Box<dyn Future<Output = Result<DryRan, StoreError>> + Send + 'r>>;

/// What would become of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryRan {
    /// Its handler finished: it would be applied.
    Applied,
    /// The business refused it, for this reason.
    Rejected(String),
    /// There is nothing left to do for it: it was handled before, its effect is there already, or its version is not
    /// newer than the state.
    PutAway(OutcomeKind),
    /// It would be set aside again. With a class, its handler failed or could not be asked; without one, it would wait,
    /// for a version that is missing.
    SetAside(Verdict),
    /// It was not dead when its turn came, or somebody held it.
    Moving,
}
