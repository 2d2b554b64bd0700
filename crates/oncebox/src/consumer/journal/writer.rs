//! Writes what is noted, on a connection of its own.
//!
//! It never fails. What the store does not take is kept and tried again, less often each time; meanwhile the notes fill up,
//! and what finds no room is counted. Whoever reads the log is told once that entries are missing, and once that they are
//! written again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncebox_core::journal::{JournalEntry, JournalStore, Journals};
use oncebox_core::{Code, StoreError};
use tokio::time::Instant;

use super::Journaling;
use super::notes::{Note, Notes};
use crate::consumer::setup::Setup;
use crate::consumer::stats::Stats;
use crate::consumer::stop::Stop;
use crate::own_session::OwnSession;
use crate::process;

/// The longest wait after a write that failed.
const FAILURE_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long it may take once nothing more is noted.
const LAST_MAX: Duration = Duration::from_secs(5);

/// How often a last write is tried again, and after how long.
const LAST_TRIES: u32 = 3;
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// Between two words about entries that are missing.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// What it takes to write the journal of one consumer.
pub(in crate::consumer) struct Writing<S> {
    name: String,
    store: S,
    notes: Arc<Notes>,
    stats: Arc<Stats>,
    every: Duration,
    /// Set once nothing more is noted.
    done: Arc<Stop>,
}

/// Runs `flows`, and beside them the writer of their journal, if there is one.
pub(in crate::consumer) async fn beside<S: oncebox_core::Store, T>(
    setup: Option<(Journaling<S>, Writing<S>)>,
    flows: impl Future<Output = T>,
) -> T {
    let Some((journaling, writing)) = setup else { return flows.await };
    let done = Arc::clone(&writing.done);
    let flows = async {
        let ended = flows.await;
        done.set();
        ended
    };
    tokio::join!(flows, (journaling.write)(writing)).0
}

impl<S: oncebox_core::Store> Setup<S> {
    /// The writer of the journal, if one is to be kept.
    pub(in crate::consumer) fn journal_writer(&self) -> Option<(Journaling<S>, Writing<S>)> {
        let journaling = self.journal.clone()?;
        let writing = Writing {
            name: self.name.clone(),
            store: self.store.clone(),
            notes: Arc::clone(&journaling.notes),
            stats: Arc::clone(&self.stats),
            every: self.bounds.journal_every,
            done: Arc::default(),
        };
        Some((journaling, writing))
    }
}

impl<S: JournalStore> Writing<S> {
    pub(super) async fn run(self) {
        let done = Arc::clone(&self.done);
        let mut writer = Writer {
            own: OwnSession::new(self.store.clone()),
            process: process::label(),
            pending: Vec::new(),
            pause: self.every,
            is_failing: false,
            said_lost: (0, None),
            writing: self,
        };
        // A store that does not answer holds up nobody's end, not even in the middle of an insert.
        let late = async {
            done.wait().await;
            tokio::time::sleep(LAST_MAX).await;
        };
        let why = tokio::select! {
            biased;
            ended = writer.work() => match ended {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            () = late => format!("the store did not answer in {LAST_MAX:?}"),
        };
        let left = writer.pending.len() + writer.writing.notes.len();
        Stats::add(&writer.writing.stats.journal_lost, left);
        tracing::info!(consumer = %writer.writing.name, "the last deliveries are not in the journal: {why}");
    }
}

struct Writer<S: JournalStore> {
    writing: Writing<S>,
    own: OwnSession<S>,
    process: String,
    /// Taken from the notes and not written.
    pending: Vec<Note>,
    pause: Duration,
    is_failing: bool,
    /// How many missing entries were told, and when.
    said_lost: (u64, Option<Instant>),
}

impl<S: JournalStore> Writer<S> {
    async fn work(&mut self) -> Result<(), StoreError> {
        while !self.writing.done.is_set() {
            self.wait().await;
            self.step().await;
        }
        self.finish().await
    }

    /// Until it is time to write: after a while, or once there is enough. After a failure only time helps.
    async fn wait(&self) {
        let writing = &self.writing;
        let pause = tokio::time::sleep(self.pause);
        tokio::select! {
            biased;
            () = writing.done.wait() => {}
            () = pause => {}
            () = writing.notes.enough(), if !self.is_failing => {}
        }
    }

    /// Writes what there is, up to what one insert takes.
    async fn step(&mut self) {
        self.say_lost();
        let began = Instant::now();
        match self.write().await {
            Ok(false) => {}
            Ok(true) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(consumer = %self.writing.name, "the journal is written again");
                }
                // On a store with one writer everyone waits for it: it works at most half of the time.
                let rest = began.elapsed().min(self.writing.every);
                let done = &self.writing.done;
                let _ = tokio::time::timeout(rest, done.wait()).await;
                self.pause = self.writing.every;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        code = %error.code(), consumer = %self.writing.name,
                        "the journal is not written, and tried again; messages go on without it: {error}"
                    );
                }
                self.pause = (self.pause * 2).min(FAILURE_WAIT_MAX);
            }
        }
    }

    /// Everything that is left. There is no later: what does not work at once is tried a few times more.
    async fn finish(&mut self) -> Result<(), StoreError> {
        let mut failures = 0;
        loop {
            match self.write().await {
                Ok(false) => return Ok(()),
                Ok(true) => failures = 0,
                Err(error) if failures >= LAST_TRIES || !error.is_retryable() => return Err(error),
                Err(_) => {
                    failures += 1;
                    tokio::time::sleep(LAST_PAUSE).await;
                }
            }
        }
    }

    /// One insert, in a transaction of its own; `false` if there is nothing to write.
    async fn write(&mut self) -> Result<bool, StoreError> {
        if self.pending.is_empty() {
            self.pending = self.writing.notes.take();
        }
        if self.pending.is_empty() {
            return Ok(false);
        }
        let now = Instant::now();
        let entries: Vec<JournalEntry> = self
            .pending
            .iter()
            .map(|note| JournalEntry { ago: now.duration_since(note.at), ..note.entry.clone() })
            .collect();
        let (process, many) = (self.process.as_str(), entries.len());
        let mut is_added = false;
        let written = self
            .own
            .in_transaction(async |mut tx: S::Tx| {
                let added = tx.add_to_journal(process, &entries).await;
                is_added = added.is_ok();
                (tx, added)
            })
            .await;
        let stats = &self.writing.stats;
        match &written {
            Ok(()) => {
                Stats::add(&stats.journaled, many);
                self.pending.clear();
            }
            // Written again, they might be there twice; and what the store will not have, it will not have again.
            Err(error) if is_added || !error.is_retryable() => {
                Stats::add(&stats.journal_lost, many);
                self.pending.clear();
            }
            Err(_) => {}
        }
        written.map(|()| true)
    }

    /// Tells that entries are missing, once in a while.
    fn say_lost(&mut self) {
        let lost = self.writing.stats.journal_lost.load(Relaxed);
        let (told, at) = self.said_lost;
        if lost > told && at.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            let missing = lost - told;
            tracing::warn!(
                code = %Code::JournalLost, consumer = %self.writing.name, missing,
                "{missing} deliveries are not in the journal: the store did not take them in time, and there is no room to \
                 keep more; no message is affected"
            );
            self.said_lost = (lost, Some(Instant::now()));
        }
    }
}
