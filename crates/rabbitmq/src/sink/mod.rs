//! Exchanges as a sink.

mod blame;
mod round;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use lapin::Connection;
use lapin::options::ConfirmSelectOptions;
use lapin::types::ShortString;
use oncebox_core::sink::SinkCapabilities;
use oncebox_core::{Outgoing, Sink, SinkError, SinkErrorKind};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::backoff::Backoff;
use crate::error::Trouble;
use crate::link::{Link, within};
use crate::rabbit::Rabbit;
use crate::sink::round::Parcel;
use crate::topic::Topic;
use crate::topology::find_exchange;
use crate::write::{Mode, write};

/// Publishes to RabbitMQ. Made by [`Rabbit::sink`].
///
/// A topic is `exchange/routing-key`, split at the first `/`, or a routing key alone for the default exchange, which leads to
/// the queue of that name; a queue with a `/` in its name is written `/a/b`. Each part has at most 255 bytes. An exchange
/// with a `/` in its name can't be reached.
///
/// Messages are persistent, carry their id as `message-id` and are confirmed one by one. What no queue is bound for is a
/// `Configuration` error, because the broker would drop it without a word.
pub struct RabbitSink {
    rabbit: Rabbit,
    mode: Mode,
    source: String,
    message_bytes_max: usize,
    confirm_timeout: Duration,
    connection: Mutex<Shared>,
    /// One for each batch that may be under way.
    states: Vec<Mutex<State>>,
}

/// The connection that all channels are on.
#[derive(Default)]
struct Shared {
    connection: Option<Arc<Connection>>,
    backoff: Backoff,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Exchanges that were found on this connection.
    exchanges: HashSet<ShortString>,
}

/// Exchanges that are remembered as found; beyond them, they are looked for again.
const EXCHANGES_MAX: usize = 1024;

/// A message that fails by closing the channel costs a round for those behind it; so many in one batch are isolated.
const ROUNDS_MAX: usize = 32;

impl RabbitSink {
    /// See [`message_bytes_max`](Self::message_bytes_max).
    pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
    /// See [`channels`](Self::channels).
    pub const CHANNELS: u16 = 2;
    /// See [`confirm_timeout`](Self::confirm_timeout).
    pub const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);

    pub(crate) fn new(rabbit: Rabbit) -> Self {
        Self {
            rabbit,
            mode: Mode::default(),
            source: "oncebox".to_owned(),
            message_bytes_max: Self::MESSAGE_BYTES_MAX,
            confirm_timeout: Self::CONFIRM_TIMEOUT,
            connection: Mutex::default(),
            states: states(Self::CHANNELS),
        }
    }

    /// How many batches may be under way at a time, each on a channel of its own, opened when it is needed; all are on one
    /// connection. Default 2, as many as a relay has workers.
    #[must_use]
    pub fn channels(mut self, channels: u16) -> Self {
        self.states = states(channels);
        self
    }

    /// Sends events in structured mode, as one JSON document each, instead of attributes among the headers.
    #[must_use]
    pub fn structured(mut self) -> Self {
        self.mode = Mode::Structured;
        self
    }

    /// The CloudEvents `source` of messages that name none. Default `oncebox`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// The largest body that is sent; larger ones are refused before they cost the channel. Default 16 MiB, the broker's own
    /// `max_message_size` from RabbitMQ 4.0.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// How long one batch may take until all of it is confirmed. Default 30 s.
    #[must_use]
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.confirm_timeout = timeout;
        self
    }

    /// A channel that nobody uses, or the first that is free. Early ones are preferred, so that who publishes one batch at a
    /// time has one channel.
    async fn state(&self) -> MutexGuard<'_, State> {
        for state in &self.states {
            if let Ok(free) = state.try_lock() {
                return free;
            }
        }
        select_all(self.states.iter().map(|state| Box::pin(state.lock()))).await.0
    }

    async fn connect(&self, state: &mut State, deadline: Instant) -> Result<(), Trouble> {
        let mut shared = self.connection.lock().await;
        if let Some(until) = shared.backoff.until() {
            sleep_until(until.min(deadline)).await;
        }
        let connected = async {
            let link = match shared.connection.as_ref().filter(|connection| connection.status().connected()) {
                Some(connection) => Link::beside(&self.rabbit, connection).await?,
                None => Link::connect(&self.rabbit).await?,
            };
            within(&self.rabbit, link.channel.confirm_select(ConfirmSelectOptions::default())).await?;
            Ok(link)
        };
        match connected.await {
            Ok(link) => {
                shared.connection = Some(Arc::clone(&link.connection));
                shared.backoff.succeeded();
                state.link = Some(link);
                state.exchanges.clear();
                Ok(())
            }
            Err(trouble) => {
                shared.connection = None;
                shared.backoff.failed(self.rabbit.reconnect_pause_max);
                Err(trouble)
            }
        }
    }

    /// Opens no more channels on a connection that is dead or may be soon.
    async fn forget(&self, dead: &Arc<Connection>) {
        let mut shared = self.connection.lock().await;
        shared.connection.take_if(|connection| Arc::ptr_eq(connection, dead));
    }

    /// Looks for exchanges that were not seen yet, so that a missing one does not cost the channel and what is on it.
    /// Answers for each that is missing.
    async fn missing_exchanges(
        &self,
        state: &mut State,
        parcels: &[Parcel],
    ) -> Result<Vec<(ShortString, Trouble)>, Trouble> {
        let State { link: Some(link), exchanges, .. } = state else { return Ok(Vec::new()) };
        let unseen: HashSet<&ShortString> = parcels
            .iter()
            .map(|parcel| &parcel.topic.exchange)
            .filter(|exchange| !exchanges.contains(*exchange))
            .collect();
        let mut missing = Vec::new();
        for exchange in unseen {
            if exchange.as_str().is_empty() {
                continue;
            }
            match within(&self.rabbit, find_exchange(&link.connection, exchange.clone())).await {
                Ok(()) => {
                    if exchanges.len() >= EXCHANGES_MAX {
                        exchanges.clear();
                    }
                    exchanges.insert(exchange.clone());
                }
                Err(trouble) if trouble.kind == crate::error::TroubleKind::Configuration => {
                    missing.push((exchange.clone(), trouble));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(missing)
    }

    /// One attempt for all `parcels`: their answers, and those that are to be published in another round.
    async fn attempt(
        &self,
        state: &mut State,
        mut parcels: Vec<Parcel>,
        deadline: Instant,
        answers: &mut [Option<Result<(), SinkError>>],
    ) -> Vec<Parcel> {
        let ready = async {
            if state.link.is_none() {
                self.connect(state, deadline).await?;
            }
            self.missing_exchanges(state, &parcels).await
        };
        let missing = match ready.await {
            Ok(missing) => missing,
            Err(trouble) => {
                state.link = None;
                parcels.iter().for_each(|parcel| parcel.answer(answers, Err(trouble.clone())));
                return Vec::new();
            }
        };
        for (exchange, trouble) in missing {
            parcels.retain(|parcel| {
                let is_lost = parcel.topic.exchange == exchange;
                if is_lost {
                    parcel.answer(answers, Err(trouble.clone()));
                }
                !is_lost
            });
        }
        let Some(link) = &state.link else { return Vec::new() };
        let max = headers_bytes_max(link);
        parcels.retain(|parcel| {
            let fits = parcel.written.properties_bytes <= max;
            if !fits {
                let reason =
                    format!("its headers take more than the {max} bytes that fit into one frame of the broker");
                answers[parcel.index] = Some(Err(SinkError::new(SinkErrorKind::Refused, parcel.attempted(), reason)));
            }
            fits
        });
        let round = round::publish(&link.channel, parcels, deadline, answers).await;
        // Not closed in good order: a broker that does not answer would not answer to this either.
        if round.is_broken {
            let connection = Arc::clone(&link.connection);
            state.link = None;
            self.forget(&connection).await;
        }
        round.again
    }

    /// A message made ready to go, or why no broker will ever take it.
    fn parcel(&self, index: usize, outgoing: &Outgoing) -> Result<Parcel, String> {
        let topic = Topic::parse(&outgoing.topic)?;
        let written = write(&outgoing.message, Some(&self.source), self.mode)?;
        if written.payload.len() > self.message_bytes_max {
            let (bytes, max) = (written.payload.len(), self.message_bytes_max);
            return Err(format!("its body has {bytes} bytes, and at most {max} are sent"));
        }
        Ok(Parcel { index, topic, label: outgoing.message.label().to_string(), written })
    }
}

/// At least one.
fn states(number: u16) -> Vec<Mutex<State>> {
    (0..number.max(1)).map(|_| Mutex::default()).collect()
}

/// What `frame_max` leaves for properties and headers beside the frame's own bytes. A longer frame costs the connection.
fn headers_bytes_max(link: &Link) -> usize {
    match link.connection.configuration().frame_max() as usize {
        0 => usize::MAX,
        frame => frame.saturating_sub(64),
    }
}

fn attempted(label: &str, topic: &str) -> String {
    format!("publish {label} to {topic}")
}

impl Sink for RabbitSink {
    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities::none("rabbitmq")
    }

    async fn open(&self) -> Result<(), SinkError> {
        let mut state = self.state().await;
        let opened = self.connect(&mut state, Instant::now() + self.confirm_timeout).await;
        opened.map_err(|trouble| trouble.of_sink(format!("open a sink on {}", self.rabbit)))
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        let deadline = Instant::now() + self.confirm_timeout;
        let mut answers: Vec<Option<Result<(), SinkError>>> = vec![None; batch.len()];
        let mut parcels = Vec::new();
        for (index, outgoing) in batch.iter().enumerate() {
            match self.parcel(index, outgoing) {
                Ok(parcel) => parcels.push(parcel),
                Err(reason) => {
                    let attempted = attempted(&outgoing.message.label().to_string(), "RabbitMQ");
                    answers[index] = Some(Err(SinkError::new(SinkErrorKind::Refused, attempted, reason)));
                }
            }
        }
        if let Ok(mut state) = timeout_at(deadline, self.state()).await {
            for _ in 0..ROUNDS_MAX {
                if parcels.is_empty() || Instant::now() >= deadline {
                    break;
                }
                parcels = self.attempt(&mut state, parcels, deadline, &mut answers).await;
            }
        }
        let in_time = || {
            let reason = format!("it was not its turn within {:?}; publish it again", self.confirm_timeout);
            Err(SinkError::new(SinkErrorKind::Unavailable, format!("publish to {}", self.rabbit), reason))
        };
        answers.into_iter().map(|answer| answer.unwrap_or_else(in_time)).collect()
    }

    async fn close(&self) {
        self.connection.lock().await.connection = None;
        // All batches end before the connection does.
        let states = join_all(self.states.iter().map(Mutex::lock)).await;
        join_all(states.into_iter().filter_map(|mut state| state.link.take()).map(Link::close)).await;
    }
}

impl fmt::Debug for RabbitSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitSink").field("rabbit", &self.rabbit).field("mode", &self.mode).finish_non_exhaustive()
    }
}
