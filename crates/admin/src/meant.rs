//! What an operation acts on: everything that a filter matches, as it was counted. Who only looks need not count.

use oncebox_core::Timestamp;
use oncebox_core::horizon::KnownConsumer;
use oncebox_core::quarantine::{ParkedRow, QuarantineStore};

use crate::admin::Admin;
use crate::error::Error;
use crate::filter::{Filter, Subject};

/// The messages that an operation acts on. Made by [`Admin::meant`], so that whoever acts has seen the count first;
/// what is parked later is not among them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Meant {
    /// How many there were when they were counted.
    pub messages: u64,
    /// How many of them waited for a person.
    pub dead: u64,
    /// Whose they are.
    pub consumer: KnownConsumer,
    /// What they have in common.
    pub filter: Filter,
    /// The time by which ages are judged.
    pub as_of: Timestamp,
    /// The last row that can be among them.
    pub(crate) until: i64,
}

impl Meant {
    /// Whether a message is among them.
    pub(crate) fn includes(&self, row: &ParkedRow) -> bool {
        row.row <= self.until && self.filter.matches(&Subject::new(row, self.as_of))
    }
}

/// Messages that somebody looks at: nobody has counted them, so that a look at a few ends with those. Made by
/// [`Admin::matching`], or of what is [meant](Meant).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Matching {
    /// Whose they are.
    pub consumer: KnownConsumer,
    /// What they have in common.
    pub filter: Filter,
    /// The time by which ages are judged.
    pub as_of: Timestamp,
    until: i64,
}

impl Matching {
    /// Whether a message is among them.
    pub(crate) fn includes(&self, row: &ParkedRow) -> bool {
        row.row <= self.until && self.filter.matches(&Subject::new(row, self.as_of))
    }
}

impl From<&Meant> for Matching {
    fn from(meant: &Meant) -> Self {
        let Meant { consumer, filter, as_of, until, .. } = meant.clone();
        Self { consumer, filter, as_of, until }
    }
}

impl<S: QuarantineStore> Admin<S> {
    /// The messages of a consumer that a filter matches, uncounted. Reads none of them.
    pub async fn matching(&self, consumer: &str, filter: Filter) -> Result<Matching, Error> {
        let consumer = self.consumer(consumer).await?;
        Ok(Matching { consumer, filter, as_of: self.now(), until: i64::MAX })
    }

    /// Counts the messages of a consumer that a filter matches. Reads all that are parked, page by page.
    pub async fn meant(&self, consumer: &str, filter: Filter) -> Result<Meant, Error> {
        let consumer = self.consumer(consumer).await?;
        let mut meant = Meant { messages: 0, dead: 0, consumer, filter, as_of: self.now(), until: i64::MAX };
        let mut last = 0;
        loop {
            let page = self.page(meant.consumer.id, last).await?;
            let Some(end) = page.last() else { break };
            last = end.row;
            let (mut messages, mut dead) = (0, 0);
            for row in page.iter().filter(|row| meant.includes(row)) {
                messages += 1;
                dead += u64::from(row.is_dead());
            }
            meant.messages += messages;
            meant.dead += dead;
        }
        meant.until = last;
        Ok(meant)
    }
}
