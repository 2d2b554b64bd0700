//! Messages into a broker or a queue of the store, as a producer would send them.

use oncebox::postgres::Postgres;
use oncebox::queue::QueueStore;
use oncebox::sqlite::Sqlite;
use oncebox::trace::Publishing;
use oncebox::{Code, Message, Outgoing, Sink, StoreError};

use crate::file::{ConsumerSpec, Pipeline, StoreAt};
use crate::outlet::Outlet;
use crate::place::{Destination, Origin};
use crate::run::postgres;

/// Messages that are sent at a time.
const BATCH: usize = 500;

/// Why messages could not be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The store of the queue can't be had.
    #[error("cannot send to {to}: {error}")]
    Store {
        /// Where to.
        to: String,
        /// Why.
        #[source]
        error: StoreError,
    },
    /// A message was not taken. Those before it were.
    #[error("{sent} messages were sent, then: {reason}")]
    Sending {
        /// How many were confirmed.
        sent: u64,
        /// Why.
        reason: String,
    },
}

impl SendError {
    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self {
            Self::Store { error, .. } => error.code(),
            Self::Sending { .. } => Code::SendStopped,
        }
    }
}

/// Sends messages to where `to` receives from, and answers how many were confirmed. `told` hears of each batch.
///
/// A queue is in the store of the file. For a broker the file is needed only for what it says of that: settings of Kafka,
/// and the order key of a consumer; its store is not opened.
pub async fn send(
    to: &Origin,
    pipeline: Option<&Pipeline>,
    messages: impl Iterator<Item = Message>,
    told: impl FnMut(u64),
) -> Result<u64, SendError> {
    let failed = |error| SendError::Store { to: to.to_string(), error };
    let (destination, _) = to.as_destination();
    match pipeline.filter(|_| destination == Destination::Queue) {
        Some(file) => match &file.store.at {
            StoreAt::Sqlite(path) => {
                let store = Sqlite::open(path).await.map_err(failed)?;
                publish(Outlet::new(&destination, &store, file), to, pipeline, messages, told).await
            }
            StoreAt::Postgres(url) => {
                let store: Postgres = postgres(url, &file.store).await.map_err(failed)?;
                publish(Outlet::new(&destination, &store, file), to, pipeline, messages, told).await
            }
        },
        None => {
            let kafka = pipeline.map(|pipeline| pipeline.kafka.clone()).unwrap_or_default();
            let no_store = || "a queue is in a store, and none is named".to_owned();
            let outlet = Outlet::<Sqlite>::broker(&destination, &kafka).and_then(|broker| broker.ok_or_else(no_store));
            publish(outlet, to, pipeline, messages, told).await
        }
    }
}

async fn publish<S: QueueStore>(
    outlet: Result<Outlet<S>, String>,
    to: &Origin,
    pipeline: Option<&Pipeline>,
    messages: impl Iterator<Item = Message>,
    mut told: impl FnMut(u64),
) -> Result<u64, SendError> {
    let (_, topic) = to.as_destination();
    let outlet = outlet.map_err(|reason| SendError::Sending { sent: 0, reason })?;
    let consumer = pipeline.and_then(|pipeline| pipeline.consumers.iter().find(|consumer| consumer.from == *to));
    let mut sent = 0;
    let stopped = |sent, reason: String| SendError::Sending { sent, reason };
    outlet.open().await.map_err(|error| stopped(0, error.to_string()))?;
    let mut messages = messages.map(|message| keyed(message, consumer)).peekable();
    while messages.peek().is_some() {
        let outgoing = |message: Message| Outgoing { topic: topic.clone(), message: message.into() };
        let mut batch: Vec<Outgoing> = messages.by_ref().take(BATCH).map(outgoing).collect();
        let publishing = Publishing::begin(outlet.capabilities().name, &mut batch);
        let answers = outlet.publish(&batch).await;
        publishing.end(&answers);
        for answer in answers {
            answer.map_err(|error| stopped(sent, error.to_string()))?;
            sent += 1;
        }
        told(sent);
    }
    outlet.close().await;
    Ok(sent)
}

/// A message with the order key that its consumer would look for, unless it has one.
fn keyed(message: Message, consumer: Option<&ConsumerSpec>) -> Message {
    let template = consumer.and_then(|consumer| consumer.order_by.as_ref());
    match template.and_then(|template| template.text(&message).ok()) {
        Some(key) if message.order_key.is_none() => message.with_order_key(key),
        _ => message,
    }
}
