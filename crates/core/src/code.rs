//! The codes of what an operator can see: each has a page under `docs/errors/` that says what it means, what is safe, and
//! what to do.
//!
//! A code never changes its meaning and is never used again. Errors answer theirs with `code()`, the `oncebox` command
//! prints it, and a line of the log that asks something of a person carries it in the field `code`.
//!
//! | codes | about |
//! | --- | --- |
//! | OB01xx | the file and the command line |
//! | OB02xx | the store |
//! | OB03xx | brokers and sources |
//! | OB04xx | consumers and handlers |
//! | OB05xx | parked messages and replays |
//! | OB06xx | the outbox and the relay |
//! | OB07xx | retention |
//! | OB08xx | the doctor |

use std::fmt;

/// What an operator can see, by its code; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// OB0101: the command line is wrong.
    CommandLine,
    /// OB0102: the file has mistakes in it.
    FileMistakes,
    /// OB0103: a file cannot be read or written.
    FileUnusable,
    /// OB0104: an address cannot be read.
    Address,
    /// OB0105: a filter cannot be read.
    Filter,
    /// OB0106: nothing was done, because nobody said yes.
    NotConfirmed,
    /// OB0201: the store cannot be reached.
    StoreAway,
    /// OB0202: somebody else is in the way in the store.
    StoreBusy,
    /// OB0203: a transaction is gone.
    TransactionLost,
    /// OB0204: a handler ended the transaction itself.
    Breached,
    /// OB0205: somebody else has taken over.
    Fenced,
    /// OB0206: the store refused a statement.
    Refused,
    /// OB0207: the store is not set up as it must be.
    StoreSetting,
    /// OB0208: the tables are missing or too old.
    SchemaOld,
    /// OB0209: the tables are not those that this program knows.
    SchemaOther,
    /// OB0210: this user may not do that in the store.
    NoPrivilege,
    /// OB0211: the store returned what makes no sense.
    Corrupt,
    /// OB0212: nobody knows whether a step was stored.
    CommitUnknown,
    /// OB0213: the statements that run at the start failed.
    Setup,
    /// OB0214: the key or the order of a consumer has changed.
    IdentityChanged,
    /// OB0301: the source of messages cannot be reached.
    SourceAway,
    /// OB0302: a setting of the source is wrong.
    SourceSetting,
    /// OB0303: not every message was sent.
    SendStopped,
    /// OB0304: a message has headers that cannot be read.
    HeadersUnreadable,
    /// OB0401: a consumer does not start.
    ConsumerStart,
    /// OB0402: a consumer stopped.
    ConsumerStopped,
    /// OB0403: a message is set aside until a person looks at it.
    MessageDead,
    /// OB0404: most messages fail, so the consumer pauses.
    MostFail,
    /// OB0405: an order key has as many parked messages as it may.
    KeyFull,
    /// OB0406: not everything was finished at the end.
    NotDrained,
    /// OB0407: a task broke down.
    TaskBroke,
    /// OB0408: metrics cannot be served.
    MetricsAway,
    /// OB0409: suddenly many messages come again.
    DuplicatesRise,
    /// OB0410: traces cannot be sent.
    CollectorAway,
    /// OB0411: deliveries are missing in the journal.
    JournalLost,
    /// OB0501: there is no such consumer in the store.
    NoConsumer,
    /// OB0502: there is no such parked message.
    NoParked,
    /// OB0503: there is no such replay.
    NoReplay,
    /// OB0504: a replay is in another state.
    ReplayState,
    /// OB0505: no message would run.
    NothingToReplay,
    /// OB0506: a message cannot be edited so.
    CannotEdit,
    /// OB0507: a message is still being tried.
    NotDead,
    /// OB0508: nothing is known of a message.
    NothingKnown,
    /// OB0601: the relay cannot reach its broker.
    SinkAway,
    /// OB0602: the broker refuses a message.
    RowRefused,
    /// OB0603: a destination does not exist or is not allowed.
    SinkSetting,
    /// OB0604: the relay stopped.
    RelayStopped,
    /// OB0605: messages are emitted and nothing publishes them.
    NoRelay,
    /// OB0606: there is no such row in the outbox.
    NoRow,
    /// OB0701: records would be kept for too short a time.
    RetentionShort,
    /// OB0702: old records are not removed.
    RetentionStopped,
    /// OB0801: the doctor found what must be mended.
    DoctorFound,
}

impl Code {
    /// All of them, in the order of their numbers.
    #[rustfmt::skip]
    pub const ALL: [Self; 52] = [
        Self::CommandLine, Self::FileMistakes, Self::FileUnusable, Self::Address, Self::Filter, Self::NotConfirmed,
        Self::StoreAway, Self::StoreBusy, Self::TransactionLost, Self::Breached, Self::Fenced, Self::Refused,
        Self::StoreSetting, Self::SchemaOld, Self::SchemaOther, Self::NoPrivilege, Self::Corrupt,
        Self::CommitUnknown, Self::Setup, Self::IdentityChanged,
        Self::SourceAway, Self::SourceSetting, Self::SendStopped, Self::HeadersUnreadable,
        Self::ConsumerStart, Self::ConsumerStopped, Self::MessageDead, Self::MostFail, Self::KeyFull,
        Self::NotDrained, Self::TaskBroke, Self::MetricsAway, Self::DuplicatesRise, Self::CollectorAway,
        Self::JournalLost,
        Self::NoConsumer, Self::NoParked, Self::NoReplay, Self::ReplayState, Self::NothingToReplay, Self::CannotEdit,
        Self::NotDead, Self::NothingKnown,
        Self::SinkAway, Self::RowRefused, Self::SinkSetting, Self::RelayStopped, Self::NoRelay, Self::NoRow,
        Self::RetentionShort, Self::RetentionStopped,
        Self::DoctorFound,
    ];

    /// The number. Never changes its meaning.
    pub fn number(self) -> u16 {
        self.entry().0
    }

    /// What it means, in a few words.
    pub fn title(self) -> &'static str {
        self.entry().1
    }

    /// The code that is written so: `OB0102`, in capitals or not.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.to_string().eq_ignore_ascii_case(name))
    }

    fn entry(self) -> (u16, &'static str) {
        match self {
            Self::CommandLine => (101, "the command line is wrong"),
            Self::FileMistakes => (102, "the file has mistakes in it"),
            Self::FileUnusable => (103, "a file cannot be read or written"),
            Self::Address => (104, "an address cannot be read"),
            Self::Filter => (105, "a filter cannot be read"),
            Self::NotConfirmed => (106, "nothing was done, because nobody said yes"),
            Self::StoreAway => (201, "the store cannot be reached"),
            Self::StoreBusy => (202, "somebody else is in the way in the store"),
            Self::TransactionLost => (203, "a transaction is gone"),
            Self::Breached => (204, "a handler ended the transaction itself"),
            Self::Fenced => (205, "somebody else has taken over"),
            Self::Refused => (206, "the store refused a statement"),
            Self::StoreSetting => (207, "the store is not set up as it must be"),
            Self::SchemaOld => (208, "the tables are missing or too old"),
            Self::SchemaOther => (209, "the tables are not those that this program knows"),
            Self::NoPrivilege => (210, "this user may not do that in the store"),
            Self::Corrupt => (211, "the store returned what makes no sense"),
            Self::CommitUnknown => (212, "nobody knows whether a step was stored"),
            Self::Setup => (213, "the statements that run at the start failed"),
            Self::IdentityChanged => (214, "the key or the order of a consumer has changed"),
            Self::SourceAway => (301, "the source of messages cannot be reached"),
            Self::SourceSetting => (302, "a setting of the source is wrong"),
            Self::SendStopped => (303, "not every message was sent"),
            Self::HeadersUnreadable => (304, "a message has headers that cannot be read"),
            Self::ConsumerStart => (401, "a consumer does not start"),
            Self::ConsumerStopped => (402, "a consumer stopped"),
            Self::MessageDead => (403, "a message is set aside until a person looks at it"),
            Self::MostFail => (404, "most messages fail, so the consumer pauses"),
            Self::KeyFull => (405, "an order key has as many parked messages as it may"),
            Self::NotDrained => (406, "not everything was finished at the end"),
            Self::TaskBroke => (407, "a task broke down"),
            Self::MetricsAway => (408, "metrics cannot be served"),
            Self::DuplicatesRise => (409, "suddenly many messages come again"),
            Self::CollectorAway => (410, "traces cannot be sent"),
            Self::JournalLost => (411, "deliveries are missing in the journal"),
            Self::NoConsumer => (501, "there is no such consumer in the store"),
            Self::NoParked => (502, "there is no such parked message"),
            Self::NoReplay => (503, "there is no such replay"),
            Self::ReplayState => (504, "a replay is in another state"),
            Self::NothingToReplay => (505, "no message would run"),
            Self::CannotEdit => (506, "a message cannot be edited so"),
            Self::NotDead => (507, "a message is still being tried"),
            Self::NothingKnown => (508, "nothing is known of a message"),
            Self::SinkAway => (601, "the relay cannot reach its broker"),
            Self::RowRefused => (602, "the broker refuses a message"),
            Self::SinkSetting => (603, "a destination does not exist or is not allowed"),
            Self::RelayStopped => (604, "the relay stopped"),
            Self::NoRelay => (605, "messages are emitted and nothing publishes them"),
            Self::NoRow => (606, "there is no such row in the outbox"),
            Self::RetentionShort => (701, "records would be kept for too short a time"),
            Self::RetentionStopped => (702, "old records are not removed"),
            Self::DoctorFound => (801, "the doctor found what must be mended"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OB{:04}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_all_different_and_in_order() {
        assert!(Code::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for code in Code::ALL {
            assert_eq!(Code::from_name(&code.to_string()), Some(code));
        }
        assert_eq!(Code::FileMistakes.to_string(), "OB0102");
        assert_eq!(Code::from_name("ob0102"), Some(Code::FileMistakes));
        assert_eq!(Code::from_name("OB9999"), None);
    }
}
