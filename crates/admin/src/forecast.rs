//! What would become of a message if it were replayed now. Plan and replay ask the same question here, so that what is
//! forecast is what happens.

use std::collections::HashSet;

use oncebox_core::archive::Archived;
use oncebox_core::quarantine::{ParkedRow, Remembered};
use oncebox_core::versions::VersionPolicy;
use oncebox_core::{Class, Message, OutcomeKind, Timestamp, horizon};
use serde::Serialize;

use crate::admin::Readable;

/// What would become of a message if it were replayed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Forecast {
    /// It runs.
    WillApply,
    /// It was applied under its key: it is put away without running.
    AlreadyApplied,
    /// Another message with its version was applied, or will be before it: it is put away without running.
    SameVersion,
    /// A newer version was applied, or will be before it: it is put away without running.
    Stale,
    /// A version before it is missing, and is not among those that will be applied: it waits, or is dead again.
    Gap,
    /// An earlier message of its order key is dead and not replayed with it: it stays where it is.
    HeldUp,
    /// Another message was handled, or is parked, under its key: refused.
    Conflict,
    /// Nobody knows whether it was applied: its consumer has forgotten that time. Refused unless forced.
    TooOld,
    /// It was applied, and only the archive of its consumer knows. Refused, also if forced.
    Archived,
    /// It was made before the checkpoint of its consumer. Refused, also if forced.
    BeforeCheckpoint,
    /// An effect outside the store may have happened. Refused unless forced.
    EffectUnknown,
    /// Today's handler can't read it: refused.
    Unreadable,
    /// It is not dead: it is tried by itself, or somebody replays it already.
    Moving,
}

impl Forecast {
    /// All of them, in the order in which a plan lists them.
    pub const ALL: [Self; 13] = [
        Self::WillApply,
        Self::AlreadyApplied,
        Self::SameVersion,
        Self::Stale,
        Self::Gap,
        Self::HeldUp,
        Self::Conflict,
        Self::TooOld,
        Self::Archived,
        Self::BeforeCheckpoint,
        Self::EffectUnknown,
        Self::Unreadable,
        Self::Moving,
    ];

    /// As people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::WillApply => "will_apply",
            Self::AlreadyApplied => "already_applied",
            Self::SameVersion => "same_version",
            Self::Stale => "stale",
            Self::Gap => "gap",
            Self::HeldUp => "held_up",
            Self::Conflict => "conflict",
            Self::TooOld => "too_old",
            Self::Archived => "archived",
            Self::BeforeCheckpoint => "before_checkpoint",
            Self::EffectUnknown => "effect_unknown",
            Self::Unreadable => "unreadable",
            Self::Moving => "moving",
        }
    }

    /// Whether a replay revives it.
    pub fn runs(self) -> bool {
        matches!(self, Self::WillApply | Self::AlreadyApplied | Self::SameVersion | Self::Stale | Self::Gap)
    }
}

/// What the store knows of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    /// What its record says.
    pub(crate) record: Option<Remembered>,
    /// When it was handled, where it has no record and is in the archive.
    pub(crate) archived: Option<Archived>,
}

/// How far back a consumer looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Up to when its records are gone, or those that consumers share.
    pub(crate) horizon: Option<Timestamp>,
    /// Up to when its own are gone. A consumer that shares its keys has none.
    pub(crate) own_horizon: Option<Timestamp>,
    /// What was made before this is not replayed.
    pub(crate) checkpoint: Option<Timestamp>,
}

impl Limits {
    /// Whether a dead message may have been handled under a record that is gone.
    pub(crate) fn may_have_forgotten(&self, row: &ParkedRow) -> bool {
        row.is_dead() && horizon::is_forgotten(row.message.time, self.horizon)
    }

    /// Whether a record of the consumer alone may have been there and gone: then it does not share its keys.
    pub(crate) fn has_lost_its_own(&self, made_at: Timestamp) -> bool {
        horizon::is_forgotten(made_at, self.own_horizon)
    }
}

/// What the answer depends on, beside the message.
pub(crate) struct Judge<'j> {
    pub(crate) limits: Limits,
    pub(crate) force: bool,
    readable: Option<&'j Readable>,
    versions: Option<&'j dyn VersionPolicy>,
    /// Order keys that a dead message holds up, among those that were looked at.
    held: HashSet<String>,
}

impl<'j> Judge<'j> {
    pub(crate) fn new(
        limits: Limits,
        force: bool,
        readable: Option<&'j Readable>,
        versions: Option<&'j dyn VersionPolicy>,
    ) -> Self {
        Self { limits, force, readable, versions, held: HashSet::new() }
    }

    /// Why today's consumer can't read a message.
    fn unreadable(&self, message: &Message) -> Option<String> {
        let by_handler = self.readable.and_then(|readable| readable(message).err());
        by_handler.or_else(|| self.versions?.place(message).err().map(|failure| failure.reason().to_owned()))
    }

    /// Judges the next message, in the order in which they were parked; `is_meant`: the replay would touch it.
    pub(crate) fn next(&mut self, row: &ParkedRow, is_meant: bool, said: Said) -> Forecast {
        let held = row.is_held_up || row.holds_up().is_some_and(|key| self.held.contains(key));
        let alone = self.alone(row, said);
        let forecast = if held && alone.runs() { Forecast::HeldUp } else { alone };
        if row.is_dead() && !(is_meant && forecast.runs()) {
            self.stays(row);
        }
        forecast
    }

    /// This message would fail, and later ones of its order key wait behind it.
    pub(crate) fn stays(&mut self, row: &ParkedRow) {
        self.held.extend(row.holds_up().map(str::to_owned));
    }

    /// Judges a message whatever stands before it.
    fn alone(&self, row: &ParkedRow, said: Said) -> Forecast {
        if !row.is_dead() {
            return Forecast::Moving;
        }
        if self.limits.checkpoint.is_some_and(|checkpoint| row.message.time < checkpoint) {
            return Forecast::BeforeCheckpoint;
        }
        if self.unreadable(&row.message).is_some() {
            return Forecast::Unreadable;
        }
        // A consumer that has had records of its own does not share its keys, so a shared one speaks of somebody else.
        let is_its_own = |record: &Remembered| !record.is_shared || row.owns_record || !self.has_lost_its_own(row);
        match said.record.filter(is_its_own) {
            // Its own record, also if the row was there before it: whatever its age, nobody has applied it.
            Some(said) if said.is_of_parked(row.fingerprint, row.owns_record) => {}
            Some(said) if said.outcome == OutcomeKind::Parked || !said.fingerprint.agrees_with(row.fingerprint) => {
                return Forecast::Conflict;
            }
            Some(_) => return Forecast::AlreadyApplied,
            // Whoever forces it says that it was not applied, and is wrong.
            None if said.archived.is_some_and(|at| at.consumer == row.consumer || !self.has_lost_its_own(row)) => {
                return Forecast::Archived;
            }
            None if self.is_forgotten(row) && !self.force => return Forecast::TooOld,
            None => {}
        }
        if row.class == Some(Class::Unknown) && !self.force { Forecast::EffectUnknown } else { Forecast::WillApply }
    }

    fn has_lost_its_own(&self, row: &ParkedRow) -> bool {
        self.limits.has_lost_its_own(row.message.time)
    }

    fn is_forgotten(&self, row: &ParkedRow) -> bool {
        horizon::is_forgotten(row.message.time, self.limits.horizon)
    }

    /// The answer as a sentence about this message.
    pub(crate) fn sentence(&self, row: &ParkedRow, forecast: Forecast, said: Said, consumer: &str) -> String {
        let message = row.message.label();
        match forecast {
            Forecast::WillApply => format!("message {message} will be applied"),
            Forecast::AlreadyApplied => format!("message {message} was applied already; it will be put away unrun"),
            Forecast::SameVersion => {
                format!("message {message} is a version that another message brings; it will be put away unrun")
            }
            Forecast::Stale => {
                format!("message {message} is older than the state; it will be put away unrun, and nothing turned back")
            }
            Forecast::Gap => format!(
                "message {message} is too far ahead: a version before it is missing, and it will wait for that or be \
                 dead again; replay the missing one with it"
            ),
            Forecast::HeldUp => format!(
                "message {message} waits behind an earlier message of its order key, which is dead; replay that one \
                 first"
            ),
            Forecast::Conflict => format!(
                "message {message} is refused: another message was handled under its key; edit it or discard it"
            ),
            Forecast::TooOld => {
                let horizon = self.limits.horizon.map_or_else(String::new, |horizon| horizon.to_string());
                format!(
                    "message {message} is refused: it was made at {}, and {consumer} has deleted its records up to \
                     {horizon}, so nobody can tell whether it was applied; force it if you know that it was not",
                    row.message.time
                )
            }
            Forecast::Archived => {
                let between = said.archived.map(|at| format!(" between {} and {}", at.first_at, at.last_at));
                format!(
                    "message {message} is refused: it was applied (archived): a record under its key was handled{}, and \
                     only its key is kept; discard it, or have its producer send a new one",
                    between.unwrap_or_default()
                )
            }
            Forecast::BeforeCheckpoint => {
                let checkpoint = self.limits.checkpoint.map_or_else(String::new, |at| at.to_string());
                format!(
                    "message {message} is refused: it was made at {}, and {consumer} has a checkpoint at {checkpoint}: \
                     nothing from before it is replayed, also by force; discard it, or have its producer send a new one",
                    row.message.time
                )
            }
            Forecast::EffectUnknown => format!(
                "message {message} is refused: its effect outside the store may have happened; look there first, and \
                 force it if it did not"
            ),
            Forecast::Unreadable => {
                let why = self.unreadable(&row.message).unwrap_or_default();
                format!("message {message} is refused: today's handler cannot read it: {why}")
            }
            Forecast::Moving => format!("message {message} is not dead: it is tried by itself, or replayed already"),
        }
    }
}
