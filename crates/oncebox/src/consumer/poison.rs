//! Messages that kill the process.
//!
//! ```text
//!  delivered 3 times ─▶ suspect ─▶ note a wait ─▶ (wait) ─▶ note a start ─▶ run alone ─▶ forget
//!                                     │                        │
//!            died here: the next start is counted as the first └ died here: one more; after 5 parked for a person
//! ```
//!
//! A process that dies leaves no verdict, so its messages come again, the killer and its neighbours alike. One that has
//! come several times without a verdict is a suspect: it runs alone, the only thing that its process does, and that it
//! starts is noted in a transaction of its own before. If the process survives, the note goes; a message with too many
//! notes is parked for a person. First deliveries pay nothing.
//!
//! Some sources do not count deliveries; they say which may have come before, and those are counted here: that they came is
//! noted for a whole batch before it runs, and forgotten when it is done with. What is left of it was left by a process that
//! died.
//!
//! Processes are also killed from outside, and then whichever message is tried first each time looks guilty. So the
//! proof has a control: after two deaths a process waits before it starts the message, for longer than most handlers
//! take. Whatever kills processes from outside mostly does so during the wait, and that clears the message.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::parked::{Parking, Waiting};
use oncebox_core::store::{Ended, Session, Transaction};
use oncebox_core::{ConsumerId, Failure, Key, Source, StoreError, planted};

use super::attempt::During;
use super::lane::{Group, Lane, Works};
use super::parking;
use super::stats::Stats;
use super::work::Work;

/// Deliveries without a verdict that make a suspect. One death may have any cause.
const SUSPECT_FROM: u32 = 3;

/// Deaths after which a process waits before the next start.
const WAIT_FROM: u32 = 2;

/// Whether a message may have killed processes before.
pub(super) fn is_suspect<S: ConsumerStore, R>(work: &Work<S, R>) -> bool {
    work.delivery.count.is_some_and(|count| count >= SUSPECT_FROM)
}

/// Under what it is noted that a message came. Its starts are noted under its own key.
fn arrival(key: &Key) -> Option<Key> {
    Key::parts([b"came", key.as_bytes()]).ok()
}

impl<S: ConsumerStore, Src: Source<S>> Lane<S, Src> {
    /// Counts deliveries that their source does not count. Answers what was noted, to be forgotten when they are done with.
    /// A store that is away counts nothing: they run uncounted, once it is back.
    pub(super) async fn count_arrivals(&mut self, works: &mut Works<S, Src>) -> Vec<(ConsumerId, Key)> {
        if !works.iter().any(|work| work.delivery.is_uncounted) {
            return Vec::new();
        }
        let (engine, consumer) = (Arc::clone(&self.engine), self.engine.records.own);
        let key_of = |work: &Work<S, Src::Receipt>| {
            let may_have_come = work.delivery.is_uncounted && !planted::is("arrivals-not-counted");
            may_have_come.then(|| parking::key(&engine, work).ok().as_ref().and_then(arrival)).flatten()
        };
        // Sorted, so that two processes do not wait for each other.
        let mut counts: BTreeMap<Key, u32> = works.iter().filter_map(|work| Some((key_of(work)?, 0))).collect();
        let noted = self
            .note(async |tx| {
                for (key, count) in &mut counts {
                    *count = tx.note_start(consumer, key, Waiting::default()).await?;
                }
                Ok(())
            })
            .await;
        if let Err(error) = noted {
            tracing::debug!(consumer = %engine.name, "deliveries were not counted: {error}");
            return Vec::new();
        }
        for work in works {
            if let Some(here) = key_of(work).and_then(|key| counts.get(&key)) {
                // What its source knows of is one more than we do.
                let before = work.delivery.count.unwrap_or(1).saturating_sub(1);
                work.delivery.count = Some(before.saturating_add(*here));
            }
        }
        counts.into_keys().map(|key| (consumer, key)).collect()
    }

    /// Runs one suspect, alone in its transaction and the only one in its process.
    pub(super) async fn run_suspect(
        &mut self,
        mut group: Group<Work<S, Src::Receipt>>,
        groups: &mut VecDeque<Group<Work<S, Src::Receipt>>>,
    ) {
        let engine = Arc::clone(&self.engine);
        // Nothing else runs in this process meanwhile: whatever kills it is not a neighbour.
        let _alone = engine.alone.write().await;
        let key = group.works.first().map(|work| parking::key(&engine, work));
        let Some(Ok(key)) = key else { return self.run_group(group, groups).await };
        Stats::add(&engine.stats.suspects, 1);
        let key = (engine.records.own, key);
        let waited = match self.note(async |tx| tx.note_wait(key.0, &key.1).await).await {
            Err(error) => return self.broken(group, error, During::Engine, groups).await,
            Ok(waited) => waited,
        };
        if waited.starts >= WAIT_FROM {
            // Another process may be waiting with a copy. It comes to its start before we do, unless it is dead.
            let wait = engine.bounds.suspect_wait * if waited.waits > 1 { 2 } else { 1 };
            tokio::select! {
                biased;
                // The note stays and clears it: a guilty one is found a few deaths later.
                () = engine.stopping() => return self.give_back(group.works).await,
                () = tokio::time::sleep(wait) => {}
            }
        }
        let started = self.note(async |tx| tx.note_start(key.0, &key.1, waited).await).await;
        let died = match started {
            Err(error) => return self.broken(group, error, During::Engine, groups).await,
            Ok(starts) => starts.saturating_sub(1),
        };
        if let Err(error) = crashpoint("started").await {
            return self.broken(group, error, During::Engine, groups).await;
        }
        if died >= engine.bounds.starts_max && !planted::is("starts-not-counted") {
            let failure = Failure::permanent(format!("the process died {died} times while it was handled alone"));
            let failure = failure.code("kills-its-process");
            if let Some(work) = group.works.pop() {
                self.failed(work, &failure).await;
            }
        } else {
            self.run_group(group, groups).await;
        }
        self.forget_starts(std::slice::from_ref(&key)).await;
    }

    /// Commits what `note` writes, in a transaction of its own.
    async fn note<T>(&mut self, note: impl AsyncFnOnce(&mut S::Tx) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.engine.store.connect().await?,
        };
        let mut tx = session.begin(self.engine.bounds.lock_wait_alone).await?;
        let noted = note(&mut tx).await;
        // Counted in the transaction of its handler, a start would vanish with the process.
        match (noted, planted::is("start-in-handler-transaction")) {
            (Ok(noted), false) => match tx.commit().await {
                Ended::Committed(session) => {
                    self.session = Some(session);
                    Ok(noted)
                }
                Ended::RolledBack { session, error } => {
                    self.session = session;
                    Err(error)
                }
                Ended::Unknown { doubt, error } => {
                    // One note too many or not: the next one tells.
                    let _ = self.engine.resolve(doubt).await;
                    Err(error)
                }
            },
            (noted, _) => {
                self.session = tx.rollback().await;
                noted
            }
        }
    }

    /// Best effort: a note that stays makes the message a suspect for one start less.
    pub(super) async fn forget_starts(&mut self, keys: &[(ConsumerId, Key)]) {
        if keys.is_empty() {
            return;
        }
        let session = match self.session.take() {
            Some(session) => session,
            None => match self.engine.store.connect().await {
                Ok(session) => session,
                Err(_) => return,
            },
        };
        let Ok(mut tx) = session.begin(self.engine.bounds.lock_wait_alone).await else { return };
        self.session = match tx.forget_starts(keys).await {
            Ok(()) => match tx.commit().await {
                Ended::Committed(session) => Some(session),
                Ended::RolledBack { session, .. } => session,
                Ended::Unknown { doubt, .. } => {
                    let _ = self.engine.resolve(doubt).await;
                    None
                }
            },
            Err(_) => tx.rollback().await,
        };
    }
}
