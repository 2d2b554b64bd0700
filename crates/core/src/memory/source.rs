//! A source in memory: every delivery is leased, counted and redelivered, as a broker would.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::SourceError;
use crate::message::Message;
use crate::source::{Coordinate, Delivery, Order, Release, Source, SourceCapabilities};
use crate::store::Store;
use crate::time::{Clock, SystemClock};

/// Messages in memory. Clones share them. Order is kept per order key among what this one process reads.
#[derive(Clone)]
pub struct MemorySource {
    shared: Arc<Shared>,
}

struct Shared {
    slots: Mutex<Slots>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    lease: Duration,
}

#[derive(Default)]
struct Slots {
    by_place: BTreeMap<u64, Slot>,
    next: u64,
    acknowledged: u64,
    hasher: RandomState,
    /// Everything before this place is in hand or delayed, and so need not be looked at to find what is not.
    passed: u64,
    /// How many messages before that place have each order: they block what follows.
    blocking: HashMap<u64, u32, AsItIs>,
    /// When the first of them comes back, unless it is extended: microseconds since 1970.
    returns_at: i64,
}

impl Slots {
    /// Looks at everything again: something before `passed` may be free.
    fn start_over(&mut self) {
        self.passed = 0;
        self.blocking.clear();
        self.returns_at = i64::MAX;
    }

    fn remove(&mut self, place: u64) {
        let Some(slot) = self.by_place.remove(&place) else { return };
        self.acknowledged += 1;
        if let Some(order) = slot.order
            && place < self.passed
            && let Entry::Occupied(mut blocking) = self.blocking.entry(order)
        {
            *blocking.get_mut() -= 1;
            if *blocking.get() == 0 {
                blocking.remove();
            }
        }
    }
}

struct Slot {
    message: Arc<Message>,
    /// A hash of the message's order key. Two keys with one hash, should there ever be any, wait for each other.
    order: Option<u64>,
    deliveries: u32,
    /// Microseconds since 1970 from which it can be delivered.
    visible_at: i64,
}

/// For what is a hash already.
type AsItIs = BuildHasherDefault<Same>;

#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Nothing else than a `u64` is ever put in; this is here because it must be.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// One delivery of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReceipt {
    place: u64,
    delivery: u32,
}

impl MemorySource {
    /// How long a delivery stays with whoever received it.
    pub const LEASE: Duration = Duration::from_secs(30);

    /// An empty source.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock), Self::LEASE)
    }

    /// An empty source whose leases run by `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>, lease: Duration) -> Self {
        let shared = Shared { slots: Mutex::default(), changed: Notify::new(), clock, lease };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a message at the end.
    pub fn send(&self, message: Message) {
        self.send_all([message]);
    }

    /// Adds messages at the end.
    pub fn send_all(&self, messages: impl IntoIterator<Item = Message>) {
        let now = self.now();
        let mut slots = self.slots();
        for message in messages {
            let place = slots.next;
            slots.next += 1;
            let order = message.order_key.as_ref().map(|key| slots.hasher.hash_one(key));
            let slot = Slot { message: Arc::new(message), order, deliveries: 0, visible_at: now };
            slots.by_place.insert(place, slot);
        }
        drop(slots);
        self.shared.changed.notify_waiters();
    }

    /// How many messages are not acknowledged yet.
    pub fn backlog(&self) -> usize {
        self.slots().by_place.len()
    }

    /// How many were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.slots().acknowledged
    }

    /// Wakes whoever waits to receive, after a test moved the clock.
    pub fn wake(&self) {
        self.shared.changed.notify_waiters();
    }

    fn now(&self) -> i64 {
        self.shared.clock.now().as_microsecond()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.shared.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, max: usize) -> Vec<Delivery<MemoryReceipt>> {
        let now = self.now();
        let until = now + i64::try_from(self.shared.lease.as_micros()).unwrap_or(i64::MAX / 4);
        let mut slots = self.slots();
        if now >= slots.returns_at {
            slots.start_over();
        }
        let Slots { by_place, passed, blocking, returns_at, .. } = &mut *slots;
        // What is in hand behind a message that has to wait, and so can't be passed yet.
        let mut beyond: HashSet<u64, AsItIs> = HashSet::default();
        let mut waits = false;
        let (mut taken, mut gone_by) = (Vec::new(), Vec::new());
        for (&place, slot) in by_place.range_mut(*passed..) {
            if taken.len() == max {
                break;
            }
            let order = slot.order;
            if slot.visible_at > now {
                if waits {
                    beyond.extend(order);
                } else {
                    *passed = place + 1;
                    *returns_at = slot.visible_at.min(*returns_at);
                    if let Some(order) = order {
                        *blocking.entry(order).or_default() += 1;
                    }
                }
                continue;
            }
            if order.is_some_and(|order| blocking.contains_key(&order) || beyond.contains(&order)) {
                waits = true;
                continue;
            }
            slot.deliveries += 1;
            slot.visible_at = until;
            if !waits {
                *passed = place + 1;
                *returns_at = until.min(*returns_at);
                // Not yet blocking: several messages of one order may be taken together.
                gone_by.extend(order);
            }
            let receipt = MemoryReceipt { place, delivery: slot.deliveries };
            let mut delivery = Delivery::new(Arc::clone(&slot.message), receipt);
            delivery.coordinate = Some(Coordinate::new(format!("memory/{place}")));
            delivery.count = Some(slot.deliveries);
            taken.push(delivery);
        }
        for order in gone_by {
            *blocking.entry(order).or_default() += 1;
        }
        taken
    }

    /// Runs `change` on the slots that are still out under these receipts.
    fn held<'r>(&self, receipts: impl IntoIterator<Item = &'r MemoryReceipt>, mut change: impl FnMut(&mut Slot)) {
        let mut slots = self.slots();
        for receipt in receipts {
            if let Some(slot) = slots.by_place.get_mut(&receipt.place)
                && slot.deliveries == receipt.delivery
            {
                change(slot);
            }
        }
    }

    fn later(&self, delay: Duration) -> i64 {
        self.now() + i64::try_from(delay.as_micros()).unwrap_or(i64::MAX / 4)
    }
}

impl Default for MemorySource {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource").field("backlog", &self.backlog()).finish_non_exhaustive()
    }
}

impl<S: Store> Source<S> for MemorySource {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities {
            order: Order::SingleProcess,
            lease: Some(self.shared.lease),
            counts: true,
            coordinates: true,
            ..SourceCapabilities::none("memory")
        }
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<MemoryReceipt>>, SourceError> {
        // How often to look for leases and delays that ran out, which nothing announces.
        const LOOK: Duration = Duration::from_millis(20);
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let changed = self.shared.changed.notified();
            let taken = self.take(max);
            let now = tokio::time::Instant::now();
            if !taken.is_empty() || now >= deadline {
                return Ok(taken);
            }
            let _ = tokio::time::timeout(LOOK.min(deadline - now), changed).await;
        }
    }

    async fn ack(&self, deliveries: Vec<Delivery<MemoryReceipt>>) -> Result<(), SourceError> {
        let mut slots = self.slots();
        for delivery in deliveries {
            let receipt = **delivery.receipt();
            if slots.by_place.get(&receipt.place).is_some_and(|slot| slot.deliveries == receipt.delivery) {
                slots.remove(receipt.place);
            }
        }
        drop(slots);
        self.wake();
        Ok(())
    }

    async fn release(&self, deliveries: Vec<Delivery<MemoryReceipt>>, release: Release) -> Result<(), SourceError> {
        let visible_at = self.later(release.delay);
        self.held(deliveries.iter().map(|d| &**d.receipt()), |slot| slot.visible_at = visible_at);
        self.slots().start_over();
        self.wake();
        Ok(())
    }

    async fn extend(&self, receipts: &[Arc<MemoryReceipt>]) -> Result<(), SourceError> {
        let visible_at = self.later(self.shared.lease);
        self.held(receipts.iter().map(|r| &**r), |slot| slot.visible_at = visible_at);
        Ok(())
    }
}
