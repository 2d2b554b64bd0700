//! Publishing one batch, and what became of it.

use oncebox_core::crashpoint::crashpoint;
use oncebox_core::outbox::{SentReceipt, Unsent};
use oncebox_core::queue::HeldLane;
use oncebox_core::{Outgoing, Sink, SinkError, SinkErrorKind, planted};

use super::pauses::{Cause, Failing};
use super::relay::Shared;
use super::rounds::{HeldUp, rounds};
use super::stats::RelayStats;
use crate::trace::Publishing;

/// What is to be settled.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) confirmed: Vec<SentReceipt>,
    pub(super) refused: Vec<(SentReceipt, String)>,
}

impl Settled {
    pub(super) fn is_empty(&self) -> bool {
        self.confirmed.is_empty() && self.refused.is_empty()
    }

    pub(super) fn add(&mut self, more: Self) {
        self.confirmed.extend(more.confirmed);
        self.refused.extend(more.refused);
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) settled: Settled,
    /// Every row of it was confirmed, so nothing that comes after has to wait.
    pub(super) is_whole: bool,
}

/// Publishes rows that were fetched from these lanes, as long as they are ours.
pub(super) async fn publish<S, K: Sink>(shared: &Shared<S, K>, lanes: &[HeldLane], batch: &[Unsent]) -> Published {
    let mut settled = Settled::default();
    let mut held_up = HeldUp::default();
    let by_prefix = shared.sink.capabilities().fails_by_prefix || planted::is("relay-in-one-round");
    for round in rounds(batch, by_prefix) {
        let rows: Vec<&Unsent> =
            round.into_iter().map(|place| &batch[place]).filter(|row| !held_up.holds(row)).collect();
        if rows.is_empty() {
            continue;
        }
        // Between two rounds the lanes may have gone.
        if !shared.lanes.are_ours(lanes) {
            break;
        }
        let mut outgoing: Vec<Outgoing> = rows.iter().map(|row| row.outgoing.clone()).collect();
        let publishing = Publishing::begin(shared.sink.capabilities().name, &mut outgoing);
        let answers = shared.sink.publish(&outgoing).await;
        publishing.end(&answers);
        let _ = crashpoint("relay-published").await;
        for (row, answer) in rows.iter().zip(answers) {
            match answer {
                Ok(()) => {
                    settled.confirmed.push(row.receipt);
                    RelayStats::add(&shared.stats.published, 1);
                    shared.works(&row.outgoing.topic);
                }
                // A sink that confirms by prefix stops there by itself.
                Err(_) if held_up.holds(row) => {}
                Err(error) => {
                    held_up.by(row);
                    failed(shared, row, error, &mut settled, &mut held_up);
                }
            }
        }
    }
    let is_whole = settled.confirmed.len() == batch.len();
    Published { settled, is_whole }
}

fn failed<'b, S, K>(
    shared: &Shared<S, K>,
    row: &'b Unsent,
    error: SinkError,
    settled: &mut Settled,
    held_up: &mut HeldUp<'b>,
) {
    let topic = &row.outgoing.topic;
    match error.kind() {
        SinkErrorKind::Refused => {
            let label = row.outgoing.message.label().to_string();
            tracing::warn!(code = %error.code(), topic, "cannot publish message {label}; it is set aside until someone looks at it: {error}");
            settled.refused.push((row.receipt, error.reason().to_owned()));
        }
        kind => {
            RelayStats::add(&shared.stats.failed, 1);
            held_up.by_topic(row);
            let cause = if kind == SinkErrorKind::Unavailable { Cause::Away } else { Cause::Own };
            if shared.pauses.failed(topic, cause) == Failing::New {
                tracing::warn!(code = %error.code(), topic, "cannot publish to {topic}; its messages wait in the outbox: {error}");
                shared.stats.set_waiting_for(Some(error.to_string()));
            }
        }
    }
}
