//! What a journal of every delivery costs, told to whoever switches it on.

use oncebox::journal;

use crate::file::{ConsumerSpec, Pipeline, StoreAt, StoreSpec};
use crate::retention::Span;

/// What the journal of a consumer costs; `None` if it keeps none.
pub(crate) fn cost(spec: &ConsumerSpec, store: &StoreSpec) -> Option<String> {
    let kept = Span(spec.journal?);
    let store = match store.at {
        StoreAt::Sqlite(_) => "sqlite",
        StoreAt::Postgres(_) => "postgres",
    };
    Some(format!("a journal is kept of every delivery, for {kept}: {}", journal::cost(store)))
}

/// Tells it of each consumer.
pub(crate) fn tell_costs(pipeline: &Pipeline) {
    for spec in &pipeline.consumers {
        if let Some(says) = cost(spec, &pipeline.store) {
            tracing::info!(consumer = spec.name, "{says}");
        }
    }
}
