//! Everything about a consumer but its source, and the flows that are made of it.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;

use oncebox_core::source::{Order, SourceCapabilities};
use oncebox_core::store::InvalidName;
use oncebox_core::{Class, Clock, ConsumerName, KeyStrategy, Store, SystemClock};
use tokio::sync::RwLock;

use super::alerts::Alerts;
use super::archived::Look;
use super::breaker::Breaker;
use super::guarantee::{Guarantee, Promise, promise};
use super::identity::Identity;
use super::journal::Journaling;
use super::order_by::{OrderBy, by_message_key};
use super::retry::Retries;
use super::routes::Routes;
use super::settle::SettledHook;
use super::versioned::Versioned;
use super::{Bounds, Stats};
use crate::parked_source::Due;

/// Everything about a consumer but its source.
pub(super) struct Setup<S: Store> {
    pub(super) name: String,
    pub(super) store: S,
    pub(super) routes: Routes<S>,
    pub(super) bounds: Bounds,
    pub(super) identity: Identity,
    pub(super) order: OrderBy,
    pub(super) constraints: HashSet<String>,
    pub(super) hooks: Vec<Arc<SettledHook>>,
    pub(super) alerts: Alerts,
    /// Shared by all flows of the consumer.
    pub(super) journal: Option<Journaling<S>>,
    /// Asks the archive of keys, if it is to be asked.
    pub(super) archive: Option<Look<S>>,
    pub(super) versioned: Option<Versioned>,
    pub(super) retries: Retries,
    pub(super) classify: Vec<Classify>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stats: Arc<Stats>,
    pub(super) flow: Flow,
    /// Tells the parked flow when something is due.
    pub(super) due: Arc<Due>,
    pub(super) breaker: Arc<Breaker>,
    /// Held alone by a suspect that is put to the proof.
    pub(super) alone: Arc<RwLock<()>>,
    /// Types that were given two handlers.
    pub(super) twice: Vec<String>,
    /// What it must be able to promise.
    pub(super) required: Guarantee,
}

/// Which part of a consumer an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// What comes from the source, or from the table of stored mode.
    Main,
    /// What stored mode stores.
    Front,
    /// What was set aside and is tried again.
    Parked,
}

/// Lanes for what was set aside.
const PARKED_LANES_MAX: usize = 4;

/// Reads the class of an error that a handler returned.
pub(super) type Classify = Arc<dyn Fn(&(dyn Error + 'static)) -> Option<Class> + Send + Sync>;

impl<S: Store> Setup<S> {
    /// A consumer with the defaults, and nothing to do.
    pub(super) fn new(name: String, store: S) -> Self {
        Self {
            name,
            store,
            routes: Routes::default(),
            bounds: Bounds::default(),
            identity: Identity::default(),
            order: OrderBy::Nothing,
            constraints: HashSet::new(),
            hooks: Vec::new(),
            alerts: Alerts::default(),
            journal: None,
            archive: None,
            versioned: None,
            retries: Retries::default(),
            classify: Vec::new(),
            clock: Arc::new(SystemClock),
            stats: Arc::default(),
            flow: Flow::Main,
            due: Arc::default(),
            breaker: Arc::new(Breaker::new(Bounds::default().breaker_sample)),
            alone: Arc::default(),
            twice: Vec::new(),
            required: Guarantee::AtLeastOnce,
        }
    }

    /// A consumer beside this one, with other handlers and counters of its own.
    pub(super) fn front(&self, routes: Routes<S>, stats: Arc<Stats>) -> Self {
        Self {
            name: self.name.clone(),
            store: self.store.clone(),
            routes,
            bounds: self.bounds.clone(),
            identity: self.identity.clone(),
            order: self.order.clone(),
            constraints: HashSet::new(),
            hooks: Vec::new(),
            alerts: self.alerts.clone(),
            journal: self.journal.clone(),
            archive: self.archive,
            versioned: None,
            retries: self.retries.clone(),
            classify: Vec::new(),
            clock: Arc::clone(&self.clock),
            stats,
            flow: Flow::Front,
            due: Arc::clone(&self.due),
            breaker: Arc::new(Breaker::new(0)),
            alone: Arc::clone(&self.alone),
            twice: Vec::new(),
            required: Guarantee::AtLeastOnce,
        }
    }

    /// The flow of what was set aside, beside this one: the same handlers, policies and counters.
    pub(super) fn parked(&self) -> Self {
        Self {
            name: self.name.clone(),
            store: self.store.clone(),
            routes: self.routes.clone(),
            bounds: Bounds { lanes: self.bounds.lanes.min(PARKED_LANES_MAX), ..self.bounds.clone() },
            identity: self.identity.clone(),
            order: by_message_key(&self.order),
            constraints: self.constraints.clone(),
            hooks: self.hooks.clone(),
            alerts: self.alerts.clone(),
            journal: self.journal.clone(),
            archive: self.archive,
            versioned: self.versioned.clone(),
            retries: self.retries.clone(),
            classify: self.classify.clone(),
            clock: Arc::clone(&self.clock),
            stats: Arc::clone(&self.stats),
            flow: Flow::Parked,
            due: Arc::clone(&self.due),
            breaker: Arc::clone(&self.breaker),
            alone: Arc::clone(&self.alone),
            twice: Vec::new(),
            required: Guarantee::AtLeastOnce,
        }
    }

    /// What can't be had from a source that keeps offsets in the store: they say that a message is done, and nothing else.
    pub(super) fn mistake_with_offsets(&self) -> Option<&'static str> {
        if self.flow == Flow::Front {
            return Some("stored mode keeps each message under its key; use the source without offsets_in_store");
        }
        if self.identity.key != KeyStrategy::Coordinate {
            return Some(
                "offsets tell messages apart by their place in the broker alone, so a producer's retry is another \
                 message; say so with `key(KeyStrategy::Coordinate)`, or use the source without offsets_in_store",
            );
        }
        if self.identity.business.is_some() || self.identity.scope.is_global() {
            return Some(
                "a business key and a global scope need a record per message, and offsets keep none; use the source \
                 without offsets_in_store",
            );
        }
        if self.identity.before().is_some() {
            return Some(
                "a changed key is bridged by claiming both, and offsets claim none; first let the source without \
                 offsets_in_store do all that was sent before the change, then leave out `key_was` and the like",
            );
        }
        if self.order.is_kept() {
            return Some(
                "each partition is handled in its order, but what follows a message that is set aside would have to be \
                 set aside as well, or leave a gap; leave out `order_by`, or use the source without offsets_in_store",
            );
        }
        if self.versioned.is_some() {
            return Some(
                "messages that wait for a version are claimed one by one; leave out `versioned`, or use the source \
                 without offsets_in_store",
            );
        }
        None
    }

    pub(super) fn check(&self) -> Result<ConsumerName, StartError> {
        let checked = ConsumerName::new(self.name.clone())?;
        let name = self.name.clone();
        if self.routes.is_empty() {
            return Err(StartError::NoHandler(name));
        }
        if let Some(kind) = self.twice.first().cloned() {
            return Err(StartError::TwoHandlers { name, kind });
        }
        match self.bounds.mistake() {
            Some(mistake) => Err(StartError::Bounds { name, mistake }),
            None => Ok(checked),
        }
    }

    /// The same, and whether it fits its source; with what it can promise.
    pub(super) fn check_with(&self, source: &SourceCapabilities) -> Result<(ConsumerName, Promise), StartError> {
        let checked = self.check()?;
        let name = || self.name.clone();
        if self.order.is_kept() && source.order == Order::None {
            return Err(StartError::NoOrder { name: name(), source_name: source.name });
        }
        if source.offsets_in_store
            && let Some(mistake) = self.mistake_with_offsets()
        {
            return Err(StartError::Offsets { name: name(), mistake });
        }
        let promise = promise(&self.store.capabilities(), source, &self.identity, &self.routes);
        if self.flow == Flow::Main && promise.guarantee < self.required {
            let because = promise.because.unwrap_or_default();
            return Err(StartError::Weaker {
                name: name(),
                required: self.required,
                given: promise.guarantee,
                because,
            });
        }
        Ok((checked, promise))
    }
}

/// Why a consumer does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its name can't be one.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// It has nothing to do.
    #[error("cannot start consumer {0}: it has no handler; add one with `on`")]
    NoHandler(String),
    /// A type has two handlers.
    #[error("cannot start consumer {name}: type `{kind}` has two handlers")]
    TwoHandlers {
        /// The consumer.
        name: String,
        /// The type.
        kind: String,
    },
    /// A bound makes no sense.
    #[error("cannot start consumer {name}: {mistake}")]
    Bounds {
        /// The consumer.
        name: String,
        /// What is wrong.
        mistake: &'static str,
    },
    /// Its source keeps offsets in the store, and something else does not go with that.
    #[error("cannot start consumer {name} with offsets in the store: {mistake}")]
    Offsets {
        /// The consumer.
        name: String,
        /// What does not go with it.
        mistake: &'static str,
    },
    /// It can't promise what is required.
    #[error(
        "cannot start consumer {name}: it must handle each message {required}, and can promise only {given}: {because}"
    )]
    Weaker {
        /// The consumer.
        name: String,
        /// What is required.
        required: Guarantee,
        /// What it can promise.
        given: Guarantee,
        /// The link that weakens it.
        because: String,
    },
    /// Order is asked for and nothing owns it.
    #[error(
        "cannot start consumer {name} with order: its source `{source_name}` gives no order key an owner, so two \
         processes could handle one key at once; use a source that does (a queue opened with lanes, a Kafka partition, a \
         RabbitMQ queue with a single active consumer, a JetStream consumer with max_ack_pending 1)"
    )]
    NoOrder {
        /// The consumer.
        name: String,
        /// The source.
        source_name: &'static str,
    },
}
