//! How long records must be kept: longer than a message can take to come back.
//!
//! A duplicate that comes after its record is gone can't be told from a new message. It is not applied, because the horizon
//! knows; but a person has to decide. So the retention is held against every way by which a message can come back, with
//! a margin of two, and one that is shorter is refused at the start.

mod brokers;
mod running;

use std::fmt;
use std::time::Duration;

use oncebox::retention::{ArchiveKept, JOURNAL_KEPT, RETENTION};

use crate::file::{ConsumerSpec, Pipeline};
pub(crate) use brokers::Facts;
pub(crate) use running::{Retiring, kept};

/// The retention is this many times as long as the longest way back: what is at the very end of one way may take it once
/// more.
const MARGIN: u32 = 2;

/// A way by which a message can come back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WayBack {
    /// Which, for people: `the broker keeps messages`.
    pub what: &'static str,
    /// For how long.
    pub lasts: Lasts,
    /// Where this is known from: `retention.ms of topic payments`.
    pub says: String,
}

/// How long a way back is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// So long.
    For(Duration),
    /// For ever.
    Forever,
    /// Nobody could tell.
    Unknown,
}

/// A consumer's retention, held against its ways back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Whose.
    pub consumer: String,
    /// For how long its records are kept.
    pub retention: Duration,
    /// What the longest way back takes, margin included; `None`: none takes long.
    pub needed: Option<Duration>,
    /// All ways, the longest first.
    pub ways: Vec<WayBack>,
    /// Why nobody knows how long is long enough: the broker did not answer, and the file has no number that takes its
    /// place. Then no record goes, because none that is gone comes back.
    pub unasked: Option<String>,
    /// For how long the keys of records that are gone stay in the archive; `None`: they are not archived.
    pub archive: Option<ArchiveKept>,
    /// For how long entries of its journal are kept, also of one that it no longer keeps.
    pub journal: Duration,
    /// The broker did not answer, whatever the file says.
    pub is_unanswered: bool,
    /// The file says that a shorter one is meant.
    pub is_unsafe: bool,
    /// Where the file says it.
    pub line: usize,
}

impl Kept {
    /// Whether records go before the longest way back has closed.
    pub fn is_too_short(&self) -> bool {
        self.needed.is_some_and(|needed| self.retention < needed)
    }

    /// Ways that nobody can outlast, or that nobody knows.
    pub fn open_ways(&self) -> impl Iterator<Item = &WayBack> {
        self.ways.iter().filter(|way| !matches!(way.lasts, Lasts::For(_)))
    }

    /// That no record goes, why, and what to do.
    pub fn nothing_goes(&self) -> Option<String> {
        let reason = self.unasked.as_ref()?;
        Some(format!(
            "no old records of consumer `{}` are removed until its broker says how long it keeps messages: {reason}; mend \
             that, or write `retention` or `broker_retention`",
            self.consumer
        ))
    }

    /// That the archive would hold nothing, and what to do.
    pub fn archive_complaint(&self) -> Option<String> {
        let Some(ArchiveKept::For(kept)) = self.archive.filter(|_| self.unasked.is_none()) else { return None };
        (kept <= self.retention).then(|| {
            format!(
                "`archive_for` of consumer `{}` is {}, and its records themselves are kept for {}; write a longer time, or \
                 leave it out to keep keys for ever",
                self.consumer,
                Span(kept),
                Span(self.retention)
            )
        })
    }

    /// What is wrong, with the numbers, and what to do.
    pub fn complaint(&self) -> Option<String> {
        let (needed, longest) = (self.needed.filter(|needed| self.retention < *needed)?, self.ways.first()?);
        Some(format!(
            "`retention` of consumer `{}` is {}, and a message can come back after {} ({}: {}); keep records for {} at \
             least, which is twice as long, or write `retention_unsafe = true`",
            self.consumer,
            Span(self.retention),
            longest.lasts,
            longest.what,
            longest.says,
            Span(needed)
        ))
    }
}

/// Holds the retention of a consumer against what the file says and what its broker told.
pub(crate) fn judge(spec: &ConsumerSpec, facts: &Facts) -> Kept {
    let mut ways = facts.ways(spec);
    for (what, stated, field) in [
        ("someone replays or rewinds", spec.retention.replay_within, "replay_within"),
        ("the business comes back to it", spec.retention.lifetime, "lifetime"),
        ("an audit asks for its record", spec.retention.audit_minimum, "audit_minimum"),
    ] {
        ways.extend(stated.map(|lasts| WayBack {
            what,
            lasts: Lasts::For(lasts),
            says: format!("`{field}` of the file"),
        }));
    }
    ways.sort_by_key(|way| std::cmp::Reverse(way.lasts.known()));
    let longest = ways.first().and_then(|way| way.lasts.known());
    let needed = longest.map(|longest| longest.saturating_mul(MARGIN));
    // Who says nothing gets what is right.
    let retention = spec.retention.kept.unwrap_or_else(|| RETENTION.max(needed.unwrap_or_default()));
    let is_stated = spec.retention.kept.or(spec.retention.broker).is_some();
    let unasked = if let Facts::Silent(reason) = facts { Some(reason.clone()).filter(|_| !is_stated) } else { None };
    let (archive, is_unsafe, line) = (spec.retention.archive, spec.retention.is_unsafe, spec.retention.line);
    let (is_unanswered, consumer) = (matches!(facts, Facts::Silent(_)), spec.name.clone());
    let journal = spec.journal.unwrap_or(JOURNAL_KEPT);
    Kept { consumer, retention, needed, ways, unasked, archive, journal, is_unanswered, is_unsafe, line }
}

/// The retention of each consumer of a file, with its broker asked.
pub async fn held_against_ways_back(pipeline: &Pipeline) -> Vec<Kept> {
    let mut kept = Vec::new();
    for spec in &pipeline.consumers {
        kept.push(judge(spec, &Facts::ask(spec, pipeline).await));
    }
    kept
}

impl Lasts {
    fn known(&self) -> Option<Duration> {
        if let Self::For(lasts) = self { Some(*lasts) } else { None }
    }
}

impl fmt::Display for Lasts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(lasts) => Span(*lasts).fmt(f),
            Self::Forever => f.write_str("any time"),
            Self::Unknown => f.write_str("an unknown time"),
        }
    }
}

/// A duration as the file writes it: `30d`, `36h`, `90s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => write!(f, "{}ms", self.0.as_millis()),
            _ if seconds.is_multiple_of(86_400) => write!(f, "{}d", seconds / 86_400),
            _ if seconds.is_multiple_of(3_600) => write!(f, "{}h", seconds / 3_600),
            _ if seconds.is_multiple_of(60) => write!(f, "{}m", seconds / 60),
            _ => write!(f, "{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(fields: &str) -> ConsumerSpec {
        let text = format!(
            "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"invoices\"\nfrom = \"queue:payments\"\n{fields}\n\
             [[consumer.on]]\ntype = \"t\"\nsql = \"select 1\"\n"
        );
        Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap().consumers.remove(0)
    }

    fn days(days: u64) -> Duration {
        Duration::from_secs(days * 86_400)
    }

    #[test]
    fn a_week_is_kept_where_nothing_comes_back() {
        let kept = judge(&consumer(""), &Facts::None);
        assert_eq!((kept.retention, kept.needed, kept.complaint()), (days(7), None, None));
    }

    #[test]
    fn money_is_kept_for_ninety_days() {
        assert_eq!(judge(&consumer("retention = \"money\""), &Facts::None).retention, days(90));
    }

    #[test]
    fn who_says_nothing_gets_twice_the_longest_way() {
        let kept = judge(&consumer("replay_within = \"14d\"\nlifetime = \"10d\""), &Facts::None);
        assert_eq!((kept.retention, kept.needed, kept.complaint()), (days(28), Some(days(28)), None));
    }

    #[test]
    fn one_that_is_too_short_is_told_with_the_numbers() {
        let kept =
            judge(&consumer("retention = \"20d\"\nreplay_within = \"14d\"\naudit_minimum = \"5d\""), &Facts::None);
        assert_eq!(
            kept.complaint().unwrap(),
            "`retention` of consumer `invoices` is 20d, and a message can come back after 14d (someone replays or \
             rewinds: `replay_within` of the file); keep records for 28d at least, which is twice as long, or write \
             `retention_unsafe = true`"
        );
        let long = judge(&consumer("retention = \"28d\"\nreplay_within = \"14d\""), &Facts::None);
        assert_eq!(long.complaint(), None);
    }

    #[test]
    fn what_the_file_states_of_the_broker_is_believed() {
        let spec = consumer("retention = \"7d\"\nbroker_retention = \"7d\"");
        let kept = judge(&spec, &Facts::None);
        assert!(kept.is_too_short() && kept.complaint().unwrap().contains("keep records for 14d"), "{kept:?}");
    }

    #[test]
    fn nothing_goes_while_the_broker_is_away_unless_the_file_has_a_number() {
        let away = Facts::Silent("it is away".to_owned());
        let kept = judge(&consumer(""), &away);
        assert_eq!(kept.unasked.as_deref(), Some("it is away"));
        assert!(kept.nothing_goes().unwrap().contains("write `retention` or `broker_retention`"));
        for stated in ["retention = \"7d\"", "broker_retention = \"7d\""] {
            assert_eq!(judge(&consumer(stated), &away).nothing_goes(), None, "{stated}");
        }
        assert_eq!(judge(&consumer(""), &Facts::None).nothing_goes(), None);
    }

    #[test]
    fn an_archive_outlasts_the_records() {
        let kept = |fields: &str| judge(&consumer(fields), &Facts::None);
        assert_eq!(kept("").archive, None);
        assert_eq!(kept("archive_keys = true").archive, Some(ArchiveKept::ForEver));
        let long = kept("retention = \"30d\"\narchive_keys = true\narchive_for = \"31d\"");
        assert_eq!((long.archive, long.archive_complaint()), (Some(ArchiveKept::For(days(31))), None));
        let short = kept("retention = \"30d\"\narchive_keys = true\narchive_for = \"30d\"");
        assert!(short.archive_complaint().unwrap().contains("is 30d, and its records themselves are kept for 30d"));
    }

    #[test]
    fn spans_are_written_as_the_file_writes_them() {
        for (seconds, text) in [(86_400 * 30, "30d"), (5_400, "90m"), (7_200, "2h"), (61, "61s")] {
            assert_eq!(Span(Duration::from_secs(seconds)).to_string(), text);
        }
        assert_eq!(Span(Duration::from_millis(200)).to_string(), "200ms");
    }
}
