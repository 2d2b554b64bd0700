//! What a failure means: whose fault it is and what may be done.

use oncebox_core::{Class, Failure, Store, StoreError, StoreErrorKind};

use super::setup::Classify;

/// What a handler's failure turned out to be.
pub(super) enum Blame {
    /// The message's own failure, as far as this run can tell.
    Message {
        failure: Failure,
        /// The unique constraint that it met.
        unique: Option<String>,
    },
    /// Not the message's: others in the way, the store away, a transaction that a neighbour broke.
    Store(StoreError),
}

/// Finds the class of a failure. An error that the store's driver made is read by the store, and its text replaced by
/// one that quotes no values.
pub(super) fn assign<S: Store>(store: &S, classify: &[Classify], failure: Failure) -> Blame {
    if let Some(error) = find::<StoreError>(&failure) {
        if error.kind() != StoreErrorKind::Refused {
            return Blame::Store(StoreError::new(error.kind(), "run a handler", error.reason()));
        }
        let reason = error.to_string();
        return Blame::Message { failure: failure.known_as(Class::Permanent, reason), unique: None };
    }
    let Some(read) = failure.cause().and_then(|cause| store.read_error(cause)) else {
        let class = failure.class().or_else(|| read_by(classify, &failure)).unwrap_or(Class::Transient);
        let reason = failure.reason().to_owned();
        return Blame::Message { failure: failure.known_as(class, reason), unique: None };
    };
    match read.kind {
        StoreErrorKind::Contended | StoreErrorKind::Unavailable | StoreErrorKind::TransactionLost => {
            Blame::Store(StoreError::new(read.kind, "run a handler", read.reason))
        }
        kind => {
            // A table that is gone, a privilege that was taken away: nothing that the message could help. It is tried again,
            // and where all fail alike the consumer pauses.
            let of_kind = if kind == StoreErrorKind::Configuration { Class::Transient } else { Class::Permanent };
            let class = failure.class().unwrap_or(of_kind);
            // What the store makes of an error has no values in it: all of it tells one cause from another.
            let failure = failure.code_or(read.reason.as_str()).known_as(class, read.reason);
            Blame::Message { failure, unique: read.unique }
        }
    }
}

/// What the user's own reading makes of it.
fn read_by(classify: &[Classify], failure: &Failure) -> Option<Class> {
    let mut cause = failure.cause();
    while let Some(error) = cause {
        if let Some(class) = classify.iter().find_map(|read| read(error)) {
            return Some(class);
        }
        cause = error.source();
    }
    None
}

fn find<E: std::error::Error + 'static>(failure: &Failure) -> Option<&E> {
    let mut cause = failure.cause();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
