//! Holding the way a consumer tells messages apart against the one that its store keeps with its name: at its start, and
//! while it runs.
//!
//! ```text
//!  start ─▶ read, with a lock ─▶ decide ─┬▶ the same, or the first      go on
//!                                        ├▶ another, and it names ours  keep it; claim the keys of both
//!                                        └▶ another                     refused, both are named
//! ```
//!
//! While it runs, no transaction of a message begins more than
//! [`identity_look_every`](super::Bounds::identity_look_every) after the last look. It costs one small read then, on the lane's
//! own connection.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::horizon::{Consumers, HorizonStore};
use oncebox_core::identity::{self, Binding, Bound, Bridge, Decided, Offer, Scheme};
use oncebox_core::store::{Ended, Session, Transaction};
use oncebox_core::{ConsumerId, ConsumerName, ConsumerStore, Source, StoreError};
use tokio::time::Instant;

use super::Engine;
use super::engine::RunError;
use super::setup::{Setup, StartError};
use super::versioned::Versioned;

/// Looks again while a consumer runs. All its flows share one.
pub(super) struct Watch {
    name: ConsumerName,
    own: ConsumerId,
    scheme: Scheme,
    /// When it was last held against the store's.
    last: Mutex<Instant>,
}

impl Watch {
    fn is_due(&self, every: Duration) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= every
    }

    fn looked(&self, at: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// What is to be kept instead, if anything.
    async fn look<Tx: Consumers>(&self, tx: &mut Tx, to_change: bool) -> Result<Option<Binding>, StoreError> {
        let kept = tx.binding(self.own, to_change).await?;
        let is_ours = kept.as_ref().is_none_or(|kept| self.scheme.agrees_with(&kept.scheme));
        if is_ours {
            return Ok(None);
        }
        let now = tx.store_time().await?;
        identity::look(&self.name, &self.scheme, kept.as_ref(), now)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl<S: HorizonStore> Setup<S> {
    /// What a start of it brings along.
    pub(super) fn offer(&self) -> Offer {
        let versions_of = self.versioned.as_ref().map(Versioned::scheme_text);
        let scheme = Scheme { versions_of, ..self.identity.scheme(&self.order) };
        let was = self.identity.before().map(|before| before.scheme(&self.identity, &self.order));
        let legacy = self.identity.legacy().map(|legacy| legacy.scheme(&self.identity, &self.order));
        Offer { scheme, was, legacy }
    }

    fn bridge(&mut self, bridge: Bridge) {
        self.identity.bridge = match bridge {
            Bridge::None => None,
            Bridge::Was => self.identity.before(),
            Bridge::Legacy => self.identity.legacy(),
        };
    }

    /// Binds its name to the way it tells messages apart; everything that is made of it then claims what it must.
    pub(super) async fn bind(&mut self) -> Result<(), RunError> {
        let (name, offer) = (self.check()?, self.offer());
        let refused = |error: StoreError| RunError::Store { name: name.to_string(), error };
        let Bound { own, decided, .. } = self.store.bind(&name, &offer).await.map_err(refused)?;
        self.bridge(decided.bridge);
        say(&name, &offer, &decided);
        let last = Mutex::new(Instant::now());
        self.identity.watch = Some(Arc::new(Watch { name, own, scheme: offer.scheme, last }));
        Ok(())
    }

    /// The same without keeping anything: whether a start would be let in.
    pub(super) async fn would_bind(&mut self, offer: Offer) -> Result<(), RunError> {
        let name = ConsumerName::new(self.name.clone()).map_err(StartError::from)?;
        let refused = |error: StoreError| RunError::Store { name: name.to_string(), error };
        let decided = identity::would_bind(&self.store, &name, &offer).await.map_err(refused)?;
        self.bridge(decided.bridge);
        Ok(())
    }
}

/// Says what a person may want to know of a start.
fn say(name: &ConsumerName, offer: &Offer, decided: &Decided) {
    let was = match decided.bridge {
        Bridge::Was => offer.was.as_ref(),
        Bridge::Legacy => offer.legacy.as_ref(),
        Bridge::None => None,
    };
    if let Some(was) = was {
        tracing::info!(
            consumer = %name,
            "the change from {was} to {} is bridged: both keys are claimed until the records of the former have expired",
            offer.scheme
        );
    } else if offer.was.is_some() && decided.keep.as_ref().is_none_or(|kept| kept.was.is_none()) {
        tracing::info!(consumer = %name, "the change of its key is complete; `key_was` and the like can be removed");
    }
}

/// Looks again if it is time to, before a transaction begins on `session`.
pub(super) async fn look_again<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    session: S::Session,
) -> Result<S::Session, StoreError> {
    let every = engine.bounds.identity_look_every;
    let Some(watch) = engine.identity.watch.as_deref().filter(|watch| watch.is_due(every)) else { return Ok(session) };
    let at = Instant::now();
    let mut tx = session.begin(engine.bounds.lock_wait_alone).await?;
    let session = match watch.look(&mut tx, false).await {
        Ok(None) => tx.rollback().await,
        Ok(Some(_)) => note(watch, tx).await?,
        Err(error) => {
            tx.rollback().await;
            return Err(error);
        }
    };
    watch.looked(at);
    match session {
        Some(session) => Ok(session),
        None => engine.store.connect().await,
    }
}

/// Keeps that this way of telling messages apart is still in use.
async fn note<T: Transaction + Consumers>(watch: &Watch, mut tx: T) -> Result<Option<T::Session>, StoreError> {
    let noted = match watch.look(&mut tx, true).await {
        Ok(Some(binding)) => tx.set_binding(watch.own, &binding).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = noted {
        tx.rollback().await;
        return Err(error);
    }
    match tx.commit().await {
        Ended::Committed(session) => Ok(Some(session)),
        Ended::RolledBack { error, .. } => Err(error),
        // It says when we were seen. Lost or not, the next look says it again.
        Ended::Unknown { .. } => Ok(None),
    }
}
