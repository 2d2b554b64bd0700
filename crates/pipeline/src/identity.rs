//! How the consumers of a file tell messages apart, held against what their names are bound to in the store.

use oncebox::consumer::RunError;
use oncebox::memory::MemorySource;
use oncebox::{Code, Consumer, ConsumerStore, OrderBy, Source, StoreError};

use crate::file::{ConsumerSpec, Pipeline};

/// A consumer of the file that its store does not let start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Which.
    pub consumer: String,
    /// Why, and what to do.
    pub reason: String,
}

/// The consumers of a file whose names are bound to another way of telling messages apart. Changes nothing.
pub async fn refused<S: ConsumerStore>(pipeline: &Pipeline, store: &S) -> Result<Vec<Refused>, StoreError> {
    let mut found = Vec::new();
    for spec in &pipeline.consumers {
        let consumer = identified(Consumer::new(&spec.name, store.clone(), MemorySource::new()), spec);
        match consumer.check_identity().await {
            Ok(()) => {}
            Err(error) if error.code() == Code::IdentityChanged => {
                found.push(Refused { consumer: spec.name.clone(), reason: error.to_string() });
            }
            Err(RunError::Store { error, .. }) => return Err(error),
            // What else is wrong with it is told where it is checked.
            Err(_) => {}
        }
    }
    Ok(found)
}

/// A consumer that tells messages apart as the file says.
pub(crate) fn identified<S: ConsumerStore, Src: Source<S>>(
    consumer: Consumer<S, Src>,
    spec: &ConsumerSpec,
) -> Consumer<S, Src> {
    let mut consumer = consumer.key(spec.key.clone()).fingerprint(spec.content());
    if let Some(template) = &spec.order_by {
        consumer = consumer.order_by(OrderBy::Template(template.clone()));
    }
    if let Some(key) = &spec.key_was {
        consumer = consumer.key_was(key.clone());
    }
    match &spec.order_by_was {
        None => consumer,
        Some(None) => consumer.order_was(OrderBy::Nothing),
        Some(Some(template)) => consumer.order_was(OrderBy::Template(template.clone())),
    }
}
