//! Receives, makes messages ready, and hands them to lanes. It stops when there is no room, the store is away, or a
//! shutdown was asked for.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::source::LaneNumber;
use oncebox_core::{Delivery, Failure, Release, Source, SourceErrorKind};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::breaker::Admission;
use super::heartbeat::Held;
use super::outage::Pause;
use super::plants;
use super::setup::Flow;
use super::stats::{InHand, Stats};
use super::work::{Ready, Room, Took, Work};
use super::{Engine, OrderBy};

/// How long one look for messages lasts: the longest that a shutdown waits for an idle source.
const WAIT: Duration = Duration::from_millis(250);

/// Room is counted in these, because a semaphore has no room for bytes.
const KIB: usize = 1024;

/// Where work goes: one feed for all lanes, or one per lane where order is kept.
pub(super) type Outlets<S, R> = Vec<mpsc::Sender<Work<S, R>>>;

pub(super) async fn run<S: ConsumerStore, Src: Source<S>>(
    engine: Arc<Engine<S, Src>>,
    outlets: Outlets<S, Src::Receipt>,
    held: Arc<Held<Src::Receipt>>,
) {
    let mut failing: Option<Pause<'_>> = None;
    // Before anything came, the largest that may come.
    let mut usual_kib = room_kib(engine.bounds.payload_bytes_max).max(1);
    while !engine.is_stopping() {
        let Some(admitted) = admit(&engine).await else { break };
        let Some(room) = room_to_receive(&engine, usual_kib).await else { break };
        let is_probe = admitted == Admission::Probe;
        let room = if is_probe { 1 } else { room };
        // Taken before the call: whatever it returns was chosen by the source no earlier than this.
        let wave = engine.wave();
        match engine.source.receive(room, WAIT).await {
            Ok(deliveries) => {
                if failing.take().is_some() {
                    engine.stats.set_waiting_for(None);
                    tracing::info!(consumer = %engine.name, "receiving again");
                }
                if deliveries.is_empty() {
                    if is_probe {
                        engine.breaker.probe_found_nothing(engine.flow);
                    }
                    continue;
                }
                // In hand before they are counted: whoever sees the count must not take them for settled.
                let in_hand: Vec<InHand> = deliveries.iter().map(|_| InHand::new(&engine.stats)).collect();
                let arrivals =
                    if engine.flow == Flow::Parked { &engine.stats.retried } else { &engine.stats.deliveries };
                Stats::add(arrivals, deliveries.len());
                let bytes: usize = deliveries.iter().map(|delivery| delivery.message.payload.len()).sum();
                usual_kib = (3 * usual_kib + room_kib(bytes / deliveries.len())).div_ceil(4);
                held.add(deliveries.iter().map(|delivery| Arc::downgrade(delivery.receipt())));
                let _ = crashpoint("received").await;
                let mut left = Vec::new();
                for (delivery, in_hand) in deliveries.into_iter().zip(in_hand) {
                    left.extend(dispatch(&engine, &outlets, (delivery, in_hand), wave, is_probe).await);
                }
                give_back(&engine, left).await;
            }
            Err(error) if error.kind() == SourceErrorKind::Configuration => {
                engine.fail(error.to_string());
                break;
            }
            Err(error) => {
                if failing.is_none() {
                    tracing::warn!(code = %error.code(), consumer = %engine.name, "waiting for the source: {error}");
                    engine.stats.set_waiting_for(Some(error.to_string()));
                }
                tokio::select! {
                    biased;
                    () = engine.stopping() => {}
                    () = failing.get_or_insert_with(|| Pause::new(&*engine.clock, 0)).wait() => {}
                }
            }
        }
    }
}

/// Waits while the breaker is open; `None` when it is time to stop.
async fn admit<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>) -> Option<Admission> {
    tokio::select! {
        biased;
        admitted = engine.breaker.admit(engine.flow) => Some(admitted),
        () = engine.stopping() => None,
    }
}

/// How many messages there is room for, if they are as large as usual, and at least one; `None` when it is time to
/// stop.
async fn room_to_receive<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, usual_kib: usize) -> Option<usize> {
    tokio::select! {
        biased;
        () = engine.stopping() => return None,
        () = engine.outage.over() => {}
    }
    tokio::select! {
        biased;
        () = engine.stopping() => return None,
        // The permit is given back at once: only this task takes any, so what is free stays free.
        _permit = engine.room.acquire() => {}
    }
    let by_bytes = engine.room_kib.available_permits() / usual_kib.max(1);
    Some(engine.room.available_permits().min(by_bytes).max(1))
}

/// Hands a delivery to its lane; it comes back if a shutdown came before there was room for it.
async fn dispatch<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    outlets: &Outlets<S, Src::Receipt>,
    (delivery, in_hand): (Delivery<Src::Receipt>, InHand),
    wave: u64,
    is_probe: bool,
) -> Option<Delivery<Src::Receipt>> {
    let kib = kib(engine, delivery.message.payload.len());
    let room = match try_room(engine, kib) {
        // Mostly there is room: then nothing needs to be waited for.
        Some(room) => Some(room),
        None => tokio::select! {
            biased;
            () = engine.stopping() => None,
            room = take_room(engine, kib) => room,
        },
    };
    let Some((messages, kib)) = room else { return Some(delivery) };
    let work = Work { wave, is_probe, ..work(engine, delivery, Room { messages, kib, in_hand }) };
    let outlet = match &work.order_key {
        Some(key) if outlets.len() > 1 => {
            let lanes = outlets.len();
            &outlets[plants::any_lane(lane(key, lanes), lanes, &work.delivery.message)]
        }
        _ => &outlets[0],
    };
    // A closed outlet means that its lane broke down; the delivery comes again when its lease runs out.
    let _ = outlet.send(work).await;
    None
}

/// A delivery with everything that can be known about it before its transaction.
fn work<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    delivery: Delivery<Src::Receipt>,
    room: Room,
) -> Work<S, Src::Receipt> {
    let (order_key, misordered) = match order_key(engine, &delivery) {
        Ok(order_key) => (order_key, None),
        Err(failure) => (delivery.message.order_key.as_deref().map(Arc::from), Some(failure)),
    };
    let ready = match misordered {
        None => ready(engine, &delivery),
        Some(failure) => Err(failure),
    };
    Work { delivery, ready, order_key, wave: 0, is_probe: false, took: Took::default(), room }
}

/// The same for one that goes to no lane, once there is room for it; `None` if there never will be.
pub(super) async fn work_apart<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    delivery: Delivery<Src::Receipt>,
) -> Option<Work<S, Src::Receipt>> {
    let (messages, kib) = take_room(engine, kib(engine, delivery.message.payload.len())).await?;
    let room = Room { messages, kib, in_hand: InHand::new(&engine.stats) };
    Some(work(engine, delivery, room))
}

/// A shutdown came before there was room.
async fn give_back<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, deliveries: Vec<Delivery<Src::Receipt>>) {
    if deliveries.is_empty() {
        return;
    }
    Stats::add(&engine.stats.released, deliveries.len());
    engine.journal_untouched(&deliveries);
    if let Err(error) = engine.source.release(deliveries, Release::default()).await {
        tracing::info!(consumer = %engine.name, "not released, so they come again when their leases run out: {error}");
    }
}

/// Room for a message, and for its bytes.
type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

fn try_room<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, kib: u32) -> Option<Permits> {
    let messages = Arc::clone(&engine.room).try_acquire_owned().ok()?;
    let kib = Arc::clone(&engine.room_kib).try_acquire_many_owned(kib).ok()?;
    Some((messages, kib))
}

async fn take_room<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, kib: u32) -> Option<Permits> {
    let messages = Arc::clone(&engine.room).acquire_owned().await.ok()?;
    let kib = Arc::clone(&engine.room_kib).acquire_many_owned(kib).await.ok()?;
    Some((messages, kib))
}

/// The room that a payload takes. An oversized one takes all there is, for the moment until it is refused.
fn kib<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, bytes: usize) -> u32 {
    u32::try_from(room_kib(bytes.min(engine.bounds.in_flight_bytes_max))).unwrap_or(u32::MAX)
}

/// How many units of room a consumer has for bytes.
pub(super) fn room_kib(bytes: usize) -> usize {
    bytes.div_ceil(KIB)
}

/// Everything that can be known about a message before its transaction.
fn ready<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    delivery: &Delivery<Src::Receipt>,
) -> Result<Ready<S>, Failure> {
    let message = &*delivery.message;
    let (size, max) = (message.payload.len(), engine.bounds.payload_bytes_max);
    if size > max {
        return Err(Failure::permanent(format!("its payload has {size} bytes; this consumer takes at most {max}")));
    }
    message.check()?;
    let route = engine.routes.find(message)?.clone();
    let claims = if route.claims && !engine.by_offset {
        Some(engine.identity.claims(engine.records, message, delivery.coordinate.as_ref())?)
    } else {
        None
    };
    let version = match &engine.versioned {
        Some(versioned) if engine.flow != Flow::Front => Some(versioned.read(message)?),
        _ => None,
    };
    Ok(Ready { route, claims, version, in_doubt: false })
}

fn order_key<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    delivery: &Delivery<Src::Receipt>,
) -> Result<Option<Arc<str>>, Failure> {
    let message = &*delivery.message;
    if engine.by_offset {
        let LaneNumber(partition) = delivery.lane.unwrap_or(LaneNumber(0));
        return Ok(Some(Arc::from(format!("partition {partition}"))));
    }
    match &engine.order {
        OrderBy::Nothing => Ok(None),
        OrderBy::MessageKey => Ok(message.order_key.as_deref().map(Arc::from)),
        OrderBy::Template(template) => {
            let key = template
                .text(message)
                .map_err(|error| Failure::permanent(format!("it gets no order key from `{template}`: {error}")))?;
            // Sources hold messages back by the message's own order key. Under another one, what follows a failed
            // message would overtake it.
            if message.order_key.as_deref() != Some(key.as_str()) {
                return Err(Failure::permanent(format!(
                    "it was sent under another order key than `{template}` gives, so its order cannot be kept; let its \
                     producer set that order key"
                )));
            }
            Ok(Some(Arc::from(key)))
        }
    }
}

/// The lane of an order key within this process: FNV-1a, which need not agree with anyone else's.
fn lane(key: &str, lanes: usize) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash % lanes as u64) as usize
}
