//! Which handler a message goes to.

use std::collections::HashMap;
use std::sync::Arc;

use oncebox_core::{Failure, Message, Store};

use crate::handler::Erased;

/// A handler and how it is to be run.
pub(crate) struct Route<S: Store> {
    pub(crate) handler: Arc<dyn Erased<S>>,
    pub(crate) shape: Shape,
    /// Whether its messages are claimed; naturally idempotent handlers need no claim.
    pub(crate) claims: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Each,
    Batch,
}

impl<S: Store> Clone for Route<S> {
    fn clone(&self) -> Self {
        Self { handler: Arc::clone(&self.handler), shape: self.shape, claims: self.claims }
    }
}

impl<S: Store> Route<S> {
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler)
    }
}

/// All handlers of a consumer, by message type.
pub(crate) struct Routes<S: Store> {
    by_kind: HashMap<String, Route<S>>,
    /// Takes what no other handler takes.
    rest: Option<Route<S>>,
}

impl<S: Store> Default for Routes<S> {
    fn default() -> Self {
        Self { by_kind: HashMap::new(), rest: None }
    }
}

impl<S: Store> Clone for Routes<S> {
    fn clone(&self) -> Self {
        Self { by_kind: self.by_kind.clone(), rest: self.rest.clone() }
    }
}

impl<S: Store> Routes<S> {
    /// A type whose handler runs without a claim, if there is one.
    pub(crate) fn unclaimed(&self) -> Option<String> {
        let kinds = self.by_kind.iter().filter(|(_, route)| !route.claims).map(|(kind, _)| kind.as_str());
        let rest = self.rest.iter().filter(|route| !route.claims).map(|_| "all other types");
        kinds.min().or_else(|| rest.min()).map(|kind| format!("`{}`", oncebox_core::message::Shown(kind)))
    }

    /// One handler for every type.
    pub(crate) fn all(route: Route<S>) -> Self {
        Self { by_kind: HashMap::new(), rest: Some(route) }
    }

    /// Adds a handler; the type if it has one already.
    pub(crate) fn add(&mut self, kind: String, route: Route<S>) -> Option<String> {
        let taken = self.by_kind.contains_key(&kind).then(|| kind.clone());
        self.by_kind.insert(kind, route);
        taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.rest.is_none()
    }

    pub(crate) fn find(&self, message: &Message) -> Result<&Route<S>, Failure> {
        self.by_kind.get(&message.kind).or(self.rest.as_ref()).ok_or_else(|| {
            let mut known: Vec<_> = self.by_kind.keys().map(String::as_str).collect();
            known.sort_unstable();
            let kind = oncebox_core::message::Shown(&message.kind);
            Failure::permanent(format!("no handler takes type `{kind}`; this consumer takes {}", known.join(", ")))
        })
    }
}
