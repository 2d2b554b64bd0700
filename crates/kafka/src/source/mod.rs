//! Reading a topic in a consumer group.
//!
//! ```text
//!  broker ──▶ thread: poll ──▶ partitions ──take──▶ receive            (async side)
//!                 │                ▲  └──── finish, release ◀──── ack, release
//!                 └── commit the marks, pause what is full, drain before a revoke
//! ```
//!
//! librdkafka's consumer lives on one thread of its own: whatever waits in a callback of it waits there, and it is polled
//! whatever the engine does. Both sides meet in `Shared`.

mod in_store;
mod lag;
mod ledger;
mod partitions;
mod poller;
mod rebalance;
mod shared;
mod start;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::counters::Depth;
use oncebox_core::source::{Order, SourceCapabilities};
use oncebox_core::{
    Clock as _, Coordinate, Delivery, Message, Release, Source, SourceError, SourceErrorKind, Store, SystemClock,
    Timestamp,
};
use tokio::time::{Instant, timeout};

use self::partitions::Room;
use self::shared::Shared;
use crate::settings::Settings;

pub use self::in_store::OffsetsInStore;
pub use self::partitions::KafkaReceipt;

/// A topic, read in a consumer group. Several processes of one group share its partitions.
///
/// | bound | default | set with |
/// | --- | --- | --- |
/// | records that wait to be received, per partition | 2,000 and 8 MiB; above, the partition is paused | [`buffer`](Self::buffer) |
/// | wait for what is in hand before a partition is given up | 10 s | [`drain`](Self::drain) |
/// | wait for an answer of the brokers, as in `open` | 10 s | [`answer`](Self::answer) |
///
/// librdkafka fetches ahead on its own account, up to 16 MiB (`queued.max.messages.kbytes`).
pub struct KafkaSource {
    config: Arc<Config>,
    shared: Arc<Shared>,
}

/// Where a group begins in a partition for which it has no offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// With the oldest record that the broker keeps.
    Beginning,
    /// With what comes from now on. What is in the partition is never read; that holds for partitions that are added to
    /// the topic later, too.
    End,
}

#[derive(Clone, Debug)]
struct Config {
    settings: Settings,
    group: String,
    topic: String,
    start: Option<Start>,
    /// Where the store has no offset, the group's counts.
    adopts_group: bool,
    room: Room,
    drain: Duration,
    answer: Duration,
}

/// What keeps our promises, whatever the user sets.
const OURS: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // Never skips: where to go on is for a person to say.
    ("auto.offset.reset", "error"),
    ("isolation.level", "read_committed"),
    ("enable.partition.eof", "false"),
];

/// How long `close` waits for the thread to leave the group, with brokers and without. The thread goes on by itself.
const CLOSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1));

impl KafkaSource {
    /// Reads `topic` in `group`, from the brokers that `servers` names as `host:port,host:port`.
    ///
    /// A group that reads a topic for the first time has no offsets, and then [`start_from`](Self::start_from) must say
    /// where it begins.
    pub fn new(servers: impl Into<String>, group: impl Into<String>, topic: impl Into<String>) -> Self {
        let config = Config {
            settings: Settings::new(servers),
            group: group.into(),
            topic: topic.into(),
            start: None,
            adopts_group: false,
            room: Room { messages: 2_000, bytes: 8 << 20 },
            drain: Duration::from_secs(10),
            answer: Duration::from_secs(10),
        };
        Self { config: Arc::new(config), shared: Arc::default() }
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Where the group begins in partitions for which it has no offset. The choice is committed when such a partition is
    /// assigned. Without it, such a partition is an error: offsets expire, and a default would skip or repeat silently.
    #[must_use]
    pub fn start_from(self, start: Start) -> Self {
        self.with(|config| config.start = Some(start))
    }

    /// How much of each partition may wait here to be received. Released messages are among it. At least one message.
    #[must_use]
    pub fn buffer(self, messages: usize, bytes: usize) -> Self {
        self.with(|config| config.room = Room { messages: messages.max(1), bytes: bytes.max(1) })
    }

    /// How long the whole group waits, when a partition moves on to another process, for what this one has of it in hand.
    /// What is not done by then is done again by its new owner, and found to be a duplicate.
    #[must_use]
    pub fn drain(self, drain: Duration) -> Self {
        self.with(|config| config.drain = drain)
    }

    /// How long to wait for an answer of the brokers.
    #[must_use]
    pub fn answer(self, answer: Duration) -> Self {
        self.with(|config| config.answer = answer)
    }

    /// A setting of librdkafka by its own name, such as `security.protocol` or `session.timeout.ms`. Those that the
    /// promises rest on are refused by `open`: offsets, resets, isolation.
    ///
    /// With a name of its own in the group, `group.instance.id`, a process that is started again within the session goes
    /// on with its partitions, and the group stands still for nobody. The group then shares partitions by `range`; a
    /// cooperative strategy is refused, because a process that dies while it gives partitions up would leave them without
    /// a reader.
    #[must_use]
    pub fn setting(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|config| config.settings.set(name, value))
    }

    /// Keeps the offsets in the consumer's store, where they commit with the effects, instead of a record per message.
    #[must_use]
    pub fn offsets_in_store(self) -> OffsetsInStore {
        OffsetsInStore::new(self)
    }

    fn delivery(&self, receipt: KafkaReceipt, message: Arc<Message>) -> Delivery<KafkaReceipt> {
        let mut delivery = Delivery::new(message, receipt);
        let KafkaReceipt { partition, offset, hand, is_uncounted, .. } = receipt;
        delivery.coordinate = Some(Coordinate::new(format!("{}/{partition}/{offset}", self.config.topic)));
        // Kafka does not count; a second hand-out of ours is one for sure.
        delivery.count = (hand > 1).then_some(hand);
        delivery.is_uncounted = is_uncounted;
        delivery
    }
}

impl Config {
    /// Completes "cannot …".
    fn attempted(&self, what: &str) -> String {
        format!("{what} topic {} in group {} at {}", self.topic, self.group, self.settings.servers())
    }

    fn error(&self, kind: SourceErrorKind, what: &str, reason: impl Into<String>) -> SourceError {
        SourceError::new(kind, self.attempted(what), reason)
    }
}

impl<S: Store> Source<S> for KafkaSource {
    type Receipt = KafkaReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("kafka");
        capabilities.order = Order::Broker;
        capabilities.coordinates = true;
        capabilities
    }

    fn destination(&self) -> &str {
        &self.config.topic
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        poller::start(Arc::clone(&self.config), Arc::clone(&self.shared), None).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<KafkaReceipt>>, SourceError> {
        let deadline = Instant::now() + wait;
        loop {
            let arrived = self.shared.arrived();
            let now = Instant::now();
            let next_due = {
                let mut state = self.shared.state();
                let taken = state.partitions.take(max, now);
                if !taken.is_empty() {
                    drop(state);
                    // There is room again.
                    self.shared.tell_thread();
                    return Ok(taken.into_iter().map(|(receipt, message)| self.delivery(receipt, message)).collect());
                }
                if let Some(trouble) = &state.trouble {
                    return Err(self.config.error(trouble.kind, "read", trouble.reason.clone()));
                }
                state.partitions.next_due()
            };
            if now >= deadline {
                return Ok(Vec::new());
            }
            let until = next_due.map_or(deadline, |due| due.min(deadline));
            let _ = timeout(until.saturating_duration_since(now), arrived).await;
        }
    }

    /// Returns before the broker knows: the thread commits ten times a second, each time as far as things are done by
    /// then. A process that dies in between gets some messages again.
    async fn ack(&self, deliveries: Vec<Delivery<KafkaReceipt>>) -> Result<(), SourceError> {
        let mut state = self.shared.state();
        for delivery in &deliveries {
            state.is_dirty |= state.partitions.finish(delivery.receipt());
        }
        drop(state);
        self.shared.tell_thread();
        Ok(())
    }

    async fn release(&self, deliveries: Vec<Delivery<KafkaReceipt>>, release: Release) -> Result<(), SourceError> {
        let due = (!release.delay.is_zero()).then(|| Instant::now() + release.delay);
        let mut state = self.shared.state();
        for delivery in &deliveries {
            state.partitions.release(delivery.receipt(), due);
        }
        drop(state);
        self.shared.tell_receivers();
        self.shared.tell_thread();
        Ok(())
    }

    /// Nothing to do: a delivery is ours as long as its partition is.
    async fn extend(&self, _receipts: &[Arc<KafkaReceipt>]) -> Result<(), SourceError> {
        Ok(())
    }

    /// How far the partitions of this process are behind their ends; `None` before that is known of all of them. The
    /// oldest is the record at the offset to commit: it was fetched, or will be in a moment.
    async fn backlog(&self) -> Result<Option<Depth>, SourceError> {
        let (messages, oldest) = {
            let state = self.shared.state();
            (state.lag, state.partitions.oldest())
        };
        let waits = |then: Timestamp| SystemClock.now().duration_since(then).as_secs();
        let oldest_seconds = oldest.map(|then| u64::try_from(waits(then)).unwrap_or(0));
        Ok(Some(Depth { messages, is_share: true, oldest_seconds, ..Depth::default() }))
    }

    async fn close(&self) {
        self.shared.stop();
        let most = if self.shared.is_away() { CLOSE.1 } else { CLOSE.0 };
        if timeout(most, self.shared.ended()).await.is_err() {
            tracing::info!(topic = %self.config.topic, "the brokers did not answer; the group forgets this reader by itself");
        }
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        // The thread commits what is done, leaves the group and ends, without anyone waiting for it.
        self.shared.stop();
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("config", &self.config).finish_non_exhaustive()
    }
}
