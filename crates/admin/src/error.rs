//! Why an operation was refused: one sentence that says what was attempted, on what, and what to do.

use oncebox_core::key::KeyError;
use oncebox_core::replay::{ReplayId, ReplayState};
use oncebox_core::{Code, StoreError, Timestamp};

use crate::filter::FilterError;

/// An operation that was refused or failed. Unless it says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The filter can't be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Who acts, or why, is not said properly.
    #[error("cannot act under this {what}: {problem}; the audit log wants who and why")]
    Actor {
        /// Name or reason.
        what: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No such consumer was ever registered in this store.
    #[error("there is no consumer {name:?} in this store; it has {known}")]
    NoConsumer {
        /// The name that was given.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// No such message is parked.
    #[error("there is no parked message {0}; it may have been applied or discarded meanwhile")]
    NoRow(i64),
    /// There is no such row in the outbox.
    #[error("there is no row {0} in the outbox; it may have been published meanwhile")]
    NoOutboxRow(i64),
    /// Records can't be kept for so short a time.
    #[error("cannot remove what is older than {asked:?}: records are kept for an hour at least")]
    RetentionTooShort {
        /// What was asked for.
        asked: std::time::Duration,
    },
    /// There is no such replay.
    #[error("there is no replay {0}; list the replays to find the one you mean")]
    NoReplay(ReplayId),
    /// A replay is not in a state for this.
    #[error("cannot {verb} replay {id}: it is {}", state.name())]
    ReplayState {
        /// What was attempted.
        verb: &'static str,
        /// Which replay.
        id: ReplayId,
        /// Its state.
        state: ReplayState,
    },
    /// An option of a replay makes no sense.
    #[error("cannot replay with {option}: {problem}")]
    ReplayOption {
        /// Which.
        option: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No message that is meant would run.
    #[error("cannot replay: none of the {messages} messages that the filter means would run; {sentence}")]
    NothingToReplay {
        /// How many are meant.
        messages: u64,
        /// Why the first of them would not.
        sentence: String,
    },
    /// An edited payload is not JSON.
    #[error("cannot edit message {row}: the new payload is not valid JSON (line {line}, column {column})")]
    NotJson {
        /// Which message.
        row: i64,
        /// Where the mistake is.
        line: usize,
        /// Where in that line.
        column: usize,
    },
    /// The edited message gets no key.
    #[error("cannot edit message {row}: the new message gets no key: {source}")]
    NoKey {
        /// Which message.
        row: i64,
        /// Why.
        source: KeyError,
    },
    /// This process makes keys in another way than the consumer did.
    #[error(
        "cannot edit message {row}: its consumer found it under another key than this program makes for it; give the \
         consumer's own key strategy"
    )]
    OtherIdentity {
        /// Which message.
        row: i64,
    },
    /// The new message's key belongs to another.
    #[error("cannot edit message {row}: another message was handled, or is parked, under the key of the new one")]
    KeyTaken {
        /// Which message.
        row: i64,
    },
    /// A message is older than the checkpoint of its consumer.
    #[error(
        "cannot edit message {row}: it was made at {made_at}, and nothing from before the checkpoint at {checkpoint} is \
         replayed; discard it, or have its producer send a new one"
    )]
    BeforeCheckpoint {
        /// Which message.
        row: i64,
        /// When it was made.
        made_at: Timestamp,
        /// The checkpoint.
        checkpoint: Timestamp,
    },
    /// A checkpoint never goes back.
    #[error("cannot set the checkpoint of {consumer} to {asked}: it is at {is} already, and never goes back")]
    CheckpointBack {
        /// Whose.
        consumer: String,
        /// What was asked for.
        asked: Timestamp,
        /// Where it is.
        is: Timestamp,
    },
    /// Consumers would not see the checkpoint.
    #[error(
        "cannot set the checkpoint of {consumer} to {asked}: it is {now} for the store, and a checkpoint lies an hour back \
         at least, because messages may be on their way"
    )]
    CheckpointYoung {
        /// Whose.
        consumer: String,
        /// What was asked for.
        asked: Timestamp,
        /// What time it is for the store.
        now: Timestamp,
    },
    /// A message is not dead, so that it may be tried at any moment.
    #[error("cannot {verb} message {row}: it is not dead; wait until its retries have ended")]
    NotDead {
        /// What was attempted.
        verb: &'static str,
        /// Which message.
        row: i64,
    },
    /// The text of a note is too long.
    #[error("cannot note this: it has {0} characters, and at most {max} are kept", max = crate::note::NOTE_CHARS_MAX)]
    NoteTooLong(usize),
    /// Nothing more could be written.
    #[error("cannot go on writing the export: {0}")]
    Output(#[from] std::io::Error),
    /// The answer to a commit was lost.
    #[error("nobody knows whether the last step was stored: {0}; look into the audit log, then run the same again")]
    Unknown(StoreError),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self {
            Self::Filter(_) => Code::Filter,
            Self::Actor { .. } | Self::ReplayOption { .. } | Self::NoteTooLong(_) => Code::CommandLine,
            Self::CheckpointBack { .. } | Self::CheckpointYoung { .. } => Code::CommandLine,
            Self::NoConsumer { .. } => Code::NoConsumer,
            Self::NoRow(_) => Code::NoParked,
            Self::NoOutboxRow(_) => Code::NoRow,
            Self::RetentionTooShort { .. } => Code::RetentionShort,
            Self::NoReplay(_) => Code::NoReplay,
            Self::ReplayState { .. } => Code::ReplayState,
            Self::NothingToReplay { .. } => Code::NothingToReplay,
            Self::NotJson { .. }
            | Self::NoKey { .. }
            | Self::OtherIdentity { .. }
            | Self::KeyTaken { .. }
            | Self::BeforeCheckpoint { .. } => Code::CannotEdit,
            Self::NotDead { .. } => Code::NotDead,
            Self::Output(_) => Code::FileUnusable,
            Self::Unknown(_) => Code::CommitUnknown,
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the same may succeed later without anyone changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Unknown(_) => true,
            _ => false,
        }
    }
}
