//! Retention beside the consumers of a file. What is too short is refused before anything starts; where a broker cannot be
//! asked yet, nothing goes until it has answered.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox::Code;
use oncebox::retention::{Retention, RetentionError, RetentionStats};
use tokio::task::JoinSet;

use super::{Facts, Kept, Lasts, Span, held_against_ways_back, judge};
use crate::backend::Backend;
use crate::file::{Mistake, Pipeline};

/// A broker that did not answer is asked again after this, and then after twice as long each time.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// The longest time between two questions.
const ASKED_AGAIN_MAX: Duration = Duration::from_secs(60);

/// How long the records of each consumer are kept. One that is shorter than a message's longest way back is a mistake,
/// unless the file says that it is meant.
pub(crate) async fn kept(pipeline: &Pipeline, mistakes: &mut Vec<Mistake>) -> Vec<Kept> {
    let kept = held_against_ways_back(pipeline).await;
    for one in &kept {
        if let Some(says) = one.nothing_goes() {
            tracing::warn!(code = %Code::RetentionStopped, consumer = one.consumer, "{says}");
            continue;
        }
        tell_open_ways(one);
        match one.complaint() {
            Some(says) if one.is_unsafe => {
                tracing::warn!(code = %Code::RetentionShort, consumer = one.consumer, "{says}")
            }
            Some(says) => mistakes.push(Mistake { line: one.line, says }),
            None => {}
        }
        mistakes.extend(one.archive_complaint().map(|says| Mistake { line: one.line, says }));
    }
    kept
}

fn tell_open_ways(one: &Kept) {
    for way in one.open_ways() {
        let says = format!(
            "{}: a message can come back after {} ({}); what comes after its record is gone is set aside as too old",
            way.what, way.lasts, way.says
        );
        // What nobody can tell is no news at each start; `doctor` says it too.
        match way.lasts {
            Lasts::Forever => tracing::warn!(code = %Code::RetentionShort, consumer = one.consumer, "{says}"),
            _ => tracing::info!(consumer = one.consumer, "{says}"),
        }
    }
}

/// What removes old records while a file runs.
pub(crate) struct Retiring<S: Backend> {
    retention: Retention<S>,
    store: S,
    pipeline: Arc<Pipeline>,
    /// Consumers whose broker could not be asked.
    unasked: Vec<String>,
    is_needed: bool,
}

impl<S: Backend> Retiring<S> {
    pub(crate) fn new(pipeline: &Pipeline, kept: &[Kept], store: &S) -> Result<Self, RetentionError> {
        let mut retention = Retention::new(store.clone());
        let sent = pipeline.relay.as_ref().filter(|relay| relay.keep_sent);
        if let Some(relay) = sent {
            retention = retention.keep_sent(relay.sent_retention);
        }
        for one in kept {
            // Whatever the broker says: nobody comes back to a journal.
            retention = retention.keep_journal(&one.consumer, one.journal)?;
        }
        for one in kept.iter().filter(|one| one.unasked.is_none()) {
            retention = keep(retention, one)?;
        }
        let unasked = kept.iter().filter(|one| one.unasked.is_some()).map(|one| one.consumer.clone()).collect();
        let is_needed = !kept.is_empty() || sent.is_some();
        Ok(Self { retention, store: store.clone(), pipeline: Arc::new(pipeline.clone()), unasked, is_needed })
    }

    /// Whether there is anything to remove.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed
    }

    pub(crate) fn stats(&self) -> Arc<RetentionStats> {
        self.retention.stats()
    }

    /// Runs until what `ended` makes resolves.
    pub(crate) async fn run<E>(self, ended: impl Fn() -> E) -> Result<(), RetentionError>
    where
        E: Future<Output = ()> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for consumer in self.unasked {
            let retention = Retention::new(self.store.clone()).counted_in(self.retention.stats());
            running.spawn(begin_late(Arc::clone(&self.pipeline), consumer, retention, ended()));
        }
        running.spawn(self.retention.run(ended()));
        while let Some(done) = running.join_next().await {
            match done {
                Ok(done) => done?,
                // Old records stay where they are, which harms nobody.
                Err(error) => tracing::error!(code = %Code::TaskBroke, "a task of retention broke down: {error}"),
            }
        }
        Ok(())
    }
}

fn keep<S: Backend>(retention: Retention<S>, one: &Kept) -> Result<Retention<S>, RetentionError> {
    let retention = retention.keep(&one.consumer, one.retention)?.keep_journal(&one.consumer, one.journal)?;
    match one.archive {
        Some(archive) => retention.archive(&one.consumer, archive),
        None => Ok(retention),
    }
}

/// Asks the broker of one consumer until it answers, then removes what is old. What it answers can't be refused any more,
/// so where its records would go too early, they stay, and that is said.
async fn begin_late<S: Backend>(
    pipeline: Arc<Pipeline>,
    consumer: String,
    retention: Retention<S>,
    ended: impl Future<Output = ()>,
) -> Result<(), RetentionError> {
    let Some(spec) = pipeline.consumers.iter().find(|spec| spec.name == consumer) else { return Ok(()) };
    tokio::pin!(ended);
    let mut wait = ASKED_AGAIN;
    let kept = loop {
        tokio::select! {
            biased;
            () = &mut ended => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
        let facts = tokio::select! {
            biased;
            () = &mut ended => return Ok(()),
            facts = Facts::ask(spec, &pipeline) => facts,
        };
        let kept = judge(spec, &facts);
        if kept.unasked.is_none() {
            break kept;
        }
        wait = (wait * 2).min(ASKED_AGAIN_MAX);
    };
    tell_open_ways(&kept);
    if let Some(says) = kept.complaint().filter(|_| !kept.is_unsafe).or_else(|| kept.archive_complaint()) {
        tracing::warn!(code = %Code::RetentionShort, consumer, "no old records are removed, and the next start is refused: {says}");
        ended.await;
        return Ok(());
    }
    tracing::info!(consumer, "the broker has answered: records are removed after {}", Span(kept.retention));
    keep(retention, &kept)?.run(ended).await
}
