//! What a failure means: whose fault it is and what may be done.

use oncebox_core::{Class, Failure, Store, StoreError, StoreErrorKind, planted};

use super::guard::{self, Panicked};
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
/// one that quotes no values. The error behind it is the user's and may panic at each look, so it ends here.
pub(super) fn assign<S: Store>(store: &S, classify: &[Classify], mut failure: Failure) -> Blame {
    let seen = guard::call(|| look(store, classify, &failure));
    let cause = failure.take_cause();
    let _ = guard::call(|| drop(cause));
    match seen {
        Ok(Seen::Store(error)) => Blame::Store(error),
        Ok(Seen::Message { class, reason, code, unique }) => {
            let failure = match code {
                Some(code) => failure.code_or(code),
                None => failure,
            };
            Blame::Message { failure: failure.known_as(class, reason), unique }
        }
        Err(Panicked) => {
            let why = format!("{}; reading that error panicked", failure.reason());
            Blame::Message { failure: failure.known_as(Class::Permanent, why), unique: None }
        }
    }
}

/// What a look at the error behind a failure says.
enum Seen {
    Message { class: Class, reason: String, code: Option<String>, unique: Option<String> },
    Store(StoreError),
}

fn look<S: Store>(store: &S, classify: &[Classify], failure: &Failure) -> Seen {
    let of_message = |class, reason: &str| Seen::Message { class, reason: reason.to_owned(), code: None, unique: None };
    if let Some(error) = find::<StoreError>(failure) {
        return match error.kind() {
            kind @ (StoreErrorKind::Refused | StoreErrorKind::Troubled) => {
                of_message(class_of(kind), &error.to_string())
            }
            // No handler has a lease of ours in hand: it speaks of another store, whose new owner does not have this
            // message. What is damaged or set up wrongly in a store that it asked stops this message alone; where it is
            // ours, our own statements say so.
            StoreErrorKind::Fenced | StoreErrorKind::Corrupt | StoreErrorKind::Configuration => {
                of_message(failure.class().unwrap_or(Class::Transient), &error.to_string())
            }
            kind => Seen::Store(StoreError::new(kind, "run a handler", error.reason())),
        };
    }
    let Some(read) = failure.cause().and_then(|cause| store.read_error(cause)) else {
        let class = failure.class().or_else(|| read_by(classify, failure)).unwrap_or(Class::Transient);
        return of_message(class, failure.reason());
    };
    match read.kind {
        StoreErrorKind::Contended
        | StoreErrorKind::Unavailable
        | StoreErrorKind::Stale
        | StoreErrorKind::TransactionLost => Seen::Store(StoreError::new(read.kind, "run a handler", read.reason)),
        kind => {
            let class = failure.class().unwrap_or(class_of(kind));
            // What the store makes of an error has no values in it: all of it tells one cause from another.
            Seen::Message { class, code: Some(read.reason.clone()), reason: read.reason, unique: read.unique }
        }
    }
}

/// Only what the store refused is the message's own fault. A table that is gone, a privilege that was taken away, a statement
/// that was cancelled: nothing that the message could help. It is tried again, and where all fail alike the consumer pauses.
fn class_of(kind: StoreErrorKind) -> Class {
    match kind {
        StoreErrorKind::Refused => Class::Permanent,
        StoreErrorKind::Troubled if planted::is("server-trouble-blamed") => Class::Permanent,
        _ => Class::Transient,
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
