//! What processes count, kept in the store so that whoever looks need not ask each of them, nor count rows.
//!
//! ```text
//!  process a ──flush──▶ row (a, consumer invoices) ┐
//!  process b ──flush──▶ row (b, consumer invoices) ├─ added up on reading
//!  long gone ──fold───▶ row (0, consumer invoices) ┘
//! ```
//!
//! A row holds what its process counted since it began, so that a flush that is repeated changes nothing. A process that
//! dies loses what it counted since its last flush, and nothing else. Counters are for people: nothing that is promised
//! rests on them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::store::{ConsumerName, Store};
use crate::time::Timestamp;

/// A store that keeps counters.
pub trait CounterStore: Store<Tx: Counters> {}

impl<S: Store<Tx: Counters>> CounterStore for S {}

/// The counters on a transaction. Times are the store's own.
pub trait Counters {
    /// Makes rows for a process that has none yet. Safe to repeat.
    fn begin_counters(
        &mut self,
        process: &Process,
        tallies: &[Tally],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Replaces what the rows of a process hold, in one statement. `false`: they are gone, because the process was not
    /// seen for so long that others took it for dead and added them up. Then nothing may be committed, and the process
    /// goes on under a new id with what it counted since.
    fn write_counters(
        &mut self,
        process: Uuid,
        tallies: &[Tally],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Adds up the rows of up to `max` processes that were not seen for `unseen` into one row for each part. Answers how
    /// many rows. Safe beside others who do the same.
    fn fold_counters(&mut self, unseen: Duration, max: usize) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Adds up the rows of a process that ends, so that it is not taken for one that runs. Safe to repeat.
    fn end_counters(&mut self, process: Uuid) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// All rows. There are as many as processes were seen lately, times their parts, and one more for each part.
    fn read_counters(&mut self) -> impl Future<Output = Result<Counted, StoreError>> + Send;
}

/// Who counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Another one for each start.
    pub id: Uuid,
    /// How people find it: `host/pid`.
    pub label: String,
}

impl Process {
    /// The id under which the rows of processes that are gone are added up.
    pub const GONE: Uuid = Uuid::nil();
}

/// What a process counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A consumer.
    Consumer(ConsumerName),
    /// The relay.
    Relay,
}

impl Part {
    /// Reads what [`Display`](fmt::Display) wrote; `None` if a newer version wrote something else.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("consumer", name)) => ConsumerName::new(name).ok().map(Self::Consumer),
            None if text == "relay" => Some(Self::Relay),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(name) => write!(f, "consumer {name}"),
            Self::Relay => f.write_str("relay"),
        }
    }
}

/// What one process has to tell about one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The part.
    pub part: Part,
    /// The rest.
    pub body: TallyBody,
}

/// What is stored of a [`Tally`], as JSON: a version that knows more fields adds them, and older ones pass over them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TallyBody {
    /// What was counted, by the names of the counters.
    pub counts: BTreeMap<String, u64>,
    /// Messages, or lanes, in hand at the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_hand: Option<u64>,
    /// What waited at the source; `None` if the source can't tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Depth>,
    /// What the consumer promises, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    /// What it waits for, if it can't go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// How long the slowest call of a handler took, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_micros: Option<u64>,
    /// When the last of those was seen that were added up, in microseconds since 1970; for stores to fill in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<i64>,
}

impl TallyBody {
    /// Adds what another process counted. What was true only at one moment is left out.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            let sum = self.counts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.slowest_micros = self.slowest_micros.max(other.slowest_micros);
        self.last_seen = self.last_seen.max(other.last_seen);
        if self.guarantee.is_none() {
            self.guarantee.clone_from(&other.guarantee);
        }
        // Where messages come from outlives the process that read them there; how many there were does not.
        if self.backlog.is_none() {
            self.backlog =
                other.backlog.as_ref().map(|backlog| Depth { place: backlog.place.clone(), ..Depth::default() });
        }
    }

    /// One counter.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

/// How much waits somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Depth {
    /// Where: `queue:payments` for a queue of the store, which whoever looks can count anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How many messages; `None`: not known.
    pub messages: Option<u64>,
    /// There are more: counting stopped at [`COUNTED_MAX`](Self::COUNTED_MAX).
    pub is_more: bool,
    /// It is what waits for this process alone, as in its partitions: what waits for others comes on top.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_share: bool,
    /// How long the oldest waits; `None`: not known, or there is none. In a queue of the store, of those that nobody has
    /// taken; at a broker, of those that are not acknowledged.
    pub oldest_seconds: Option<u64>,
    /// How many became due within [`ARRIVED_WITHIN`](Self::ARRIVED_WITHIN) and wait, counted to one more than
    /// [`COUNTED_MAX`](Self::COUNTED_MAX); `None`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
}

impl Depth {
    /// Counting of rows stops here, so that a look costs the same whatever the size of the table.
    pub const COUNTED_MAX: u64 = 10_000;

    /// Whether many or few come is seen in those that came within so long.
    pub const ARRIVED_WITHIN: Duration = Duration::from_secs(10);

    /// What a count that was bounded by one more than [`COUNTED_MAX`](Self::COUNTED_MAX) says.
    pub fn counted(rows: u64, oldest_seconds: Option<u64>) -> Self {
        Self {
            place: None,
            messages: Some(rows.min(Self::COUNTED_MAX)),
            is_more: rows > Self::COUNTED_MAX,
            is_share: false,
            oldest_seconds,
            arrived: None,
        }
    }

    /// The same, with how many became due lately.
    #[must_use]
    pub fn with_arrived(self, arrived: u64) -> Self {
        Self { arrived: Some(arrived), ..self }
    }
}

/// All rows, and the store's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The time.
    pub now: Timestamp,
    /// The rows, those of processes that are gone first.
    pub rows: Vec<CountedRow>,
}

/// What one process has written about one part. For those that were added up, `seen_at` is when the last of them was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedRow {
    /// Who; [`Process::GONE`] for those that were added up.
    pub process: Process,
    /// When it began to count.
    pub began_at: Timestamp,
    /// When it was last seen.
    pub seen_at: Timestamp,
    /// What it wrote.
    pub tally: Tally,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_are_written() {
        for part in [Part::Relay, Part::Consumer(ConsumerName::new("in-voices").expect("a name"))] {
            assert_eq!(Part::parse(&part.to_string()), Some(part));
        }
        assert_eq!(Part::parse("saga orders"), None);
    }

    #[test]
    fn what_was_true_at_one_moment_is_not_added_up() {
        let counts = BTreeMap::from([("handled".to_owned(), 3)]);
        let backlog = Depth { place: Some("queue:q".to_owned()), messages: Some(9), ..Depth::default() };
        let one = TallyBody { counts, in_hand: Some(2), backlog: Some(backlog), ..TallyBody::default() };
        let mut sum = TallyBody::default();
        sum.add(&TallyBody { slowest_micros: Some(9), ..one.clone() });
        sum.add(&TallyBody { slowest_micros: Some(7), ..one });
        assert_eq!(sum.slowest_micros, Some(9), "the slowest is not added up");
        assert_eq!((sum.count("handled"), sum.in_hand), (6, None));
        let backlog = sum.backlog.expect("the place is known");
        assert_eq!((backlog.place.as_deref(), backlog.messages), (Some("queue:q"), None));
    }

    #[test]
    fn a_field_of_a_newer_version_is_passed_over() {
        let body: TallyBody = serde_json::from_str(r#"{"counts":{"handled":1},"mood":"good"}"#).expect("readable");
        assert_eq!(body.count("handled"), 1);
    }
}
