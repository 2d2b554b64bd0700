//! Binding a name to a scheme, on any store.

use std::time::Duration;

use super::{Binding, Decided, Known, Offer, Scheme, decide};
use crate::error::{StoreError, StoreErrorKind};
use crate::horizon::{Consumers, HorizonStore};
use crate::store::{ConsumerId, ConsumerName, Ended, Session, Transaction};
use crate::time::Timestamp;

/// How long a start waits for another start's lock.
const WAIT: Duration = Duration::from_secs(5);

/// How often a start tries when others are in the way.
const TRIES_MAX: usize = 10;

/// A name that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Where the records of the consumer are.
    pub own: ConsumerId,
    /// Where those are that consumers share.
    pub shared: ConsumerId,
    /// How its start goes on.
    pub decided: Decided,
}

/// Binds a name to what a start brings along, durably; an error with the code
/// [`IdentityChanged`](crate::Code::IdentityChanged) refuses the start.
pub async fn bind<S: HorizonStore>(store: &S, name: &ConsumerName, offer: &Offer) -> Result<Bound, StoreError> {
    let (own, shared) = (store.consumer(name).await?, store.consumer(&ConsumerName::global()).await?);
    let mut tries = 1;
    loop {
        match try_bind(store, name, offer, (own, shared)).await {
            Err(error) if error.kind() == StoreErrorKind::Contended && tries < TRIES_MAX => tries += 1,
            done => return done.map(|decided| Bound { own, shared, decided }),
        }
    }
}

/// How a start would go on, without keeping anything.
pub async fn would_bind<S: HorizonStore>(store: &S, name: &ConsumerName, offer: &Offer) -> Result<Decided, StoreError> {
    let mut tx = store.connect().await?.begin(WAIT).await?;
    let found = found(&mut tx, name, offer).await;
    tx.rollback().await;
    decide(name, offer, &found?)
}

async fn found<Tx: Consumers>(tx: &mut Tx, name: &ConsumerName, offer: &Offer) -> Result<Known, StoreError> {
    let all = tx.consumers().await?;
    let id = |name: &str| all.iter().find(|known| known.name.as_str() == name);
    match (id(name.as_str()), id("*")) {
        (Some(own), Some(shared)) => known(tx, offer, (own.id, shared.id), own.binding.clone()).await,
        _ => Ok(Known { binding: None, horizon: None, now: tx.store_time().await?, has_records: false }),
    }
}

async fn try_bind<S: HorizonStore>(
    store: &S,
    name: &ConsumerName,
    offer: &Offer,
    records: (ConsumerId, ConsumerId),
) -> Result<Decided, StoreError> {
    let mut tx = store.connect().await?.begin(WAIT).await?;
    let decided = match keep(&mut tx, name, offer, records).await {
        Ok(decided) if decided.keep.is_some() => decided,
        done => {
            tx.rollback().await;
            return done;
        }
    };
    match tx.commit().await {
        Ended::Committed(_) => Ok(decided),
        Ended::RolledBack { error, .. } => Err(error),
        Ended::Unknown { doubt, error } => {
            // Whichever way it went, asking again finds it.
            store.resolve(&doubt).await?;
            let why = format!("its commit is unknown: {error}");
            Err(StoreError::new(StoreErrorKind::Contended, format!("start consumer {name}"), why))
        }
    }
}

async fn keep<Tx: Consumers>(
    tx: &mut Tx,
    name: &ConsumerName,
    offer: &Offer,
    records: (ConsumerId, ConsumerId),
) -> Result<Decided, StoreError> {
    let binding = tx.binding(records.0, true).await?;
    let known = known(tx, offer, records, binding).await?;
    let decided = decide(name, offer, &known)?;
    if let Some(binding) = &decided.keep {
        if let Some((consumer, at)) = left_behind(&known, records) {
            tx.raise_horizon(consumer, at).await?;
        }
        tx.set_binding(records.0, binding).await?;
    }
    Ok(decided)
}

/// A bridge from shared records to the consumer's own that is over. From now on the shared records are asked about nothing, their
/// horizon included. So its own have to say of what was made before the former deployment was last seen that it may have
/// been handled there and forgotten. The other way round the consumer still asks its own horizon; that of the shared records
/// is for the others too, whose messages may be older.
fn left_behind(known: &Known, records: (ConsumerId, ConsumerId)) -> Option<(ConsumerId, Timestamp)> {
    let kept = known.binding.as_ref()?;
    let before = kept.was.as_ref().filter(|_| kept.bridges(known.horizon).is_none())?;
    let at = Timestamp::from_microsecond(before.seen_at).ok()?;
    (before.scheme.is_global() && !kept.scheme.is_global()).then_some((records.0, at))
}

/// In which records a scheme keeps its keys.
fn place(scheme: &Scheme, (own, shared): (ConsumerId, ConsumerId)) -> ConsumerId {
    if scheme.is_global() { shared } else { own }
}

async fn known<Tx: Consumers>(
    tx: &mut Tx,
    offer: &Offer,
    records: (ConsumerId, ConsumerId),
    binding: Option<Binding>,
) -> Result<Known, StoreError> {
    let before = binding.as_ref().and_then(|kept| kept.was.as_ref());
    let horizon = match before {
        // The newest deletion alone. A checkpoint deletes nothing: the records from before it still answer.
        Some(before) => {
            let former = place(&before.scheme, records);
            tx.consumers().await?.into_iter().find(|known| known.id == former).and_then(|known| known.horizon)
        }
        None => None,
    };
    let now = tx.store_time().await?;
    let has_records = match (&binding, &offer.legacy) {
        (None, Some(legacy)) => tx.has_records(place(legacy, records)).await?,
        _ => false,
    };
    Ok(Known { binding, horizon, now, has_records })
}
