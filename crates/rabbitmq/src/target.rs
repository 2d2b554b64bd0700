//! What a message that is published would find, for those who check a set-up.

use oncebox_core::message::Shown;
use oncebox_core::{SinkError, SinkErrorKind};

use crate::error::{Trouble, is_missing};
use crate::inspect::{QueueFacts, look};
use crate::link::{Link, within};
use crate::rabbit::Rabbit;
use crate::topic::Topic;
use crate::topology::{QueueSpec, find_exchange};

/// What a topic leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// An exchange. Whether a queue is bound to it for the routing key, no client can see.
    Exchange,
    /// A queue, by the default exchange.
    Queue(QueueFacts),
    /// Nothing: the exchange or the queue is not there.
    Missing,
}

/// Asks the broker what is behind a topic, which is read as [`RabbitSink`](crate::RabbitSink) reads it: the name of the
/// exchange or of the queue, and what it leads to. Nothing is published, created or changed.
pub async fn look_for(rabbit: &Rabbit, topic: &str) -> Result<(String, Target), SinkError> {
    let attempted = || format!("look for {} on {rabbit}", Shown(topic));
    let read = Topic::parse(topic).map_err(|why| SinkError::new(SinkErrorKind::Refused, attempted(), why))?;
    let found = if read.exchange.as_str().is_empty() {
        let queue = look(rabbit, &QueueSpec::named(read.routing_key.as_str())).await;
        queue.map(|facts| (format!("queue {}", read.routing_key), facts.map_or(Target::Missing, Target::Queue)))
    } else {
        let exchange = look_for_exchange(rabbit, &read).await;
        exchange.map(|is_there| {
            (format!("exchange {}", read.exchange), if is_there { Target::Exchange } else { Target::Missing })
        })
    };
    found.map_err(|trouble| trouble.of_sink(attempted()))
}

async fn look_for_exchange(rabbit: &Rabbit, topic: &Topic) -> Result<bool, Trouble> {
    let link = Link::connect(rabbit).await?;
    let there = within(rabbit, async { Ok(find_exchange(&link.connection, topic.exchange.clone()).await) }).await;
    link.close().await;
    match there? {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
