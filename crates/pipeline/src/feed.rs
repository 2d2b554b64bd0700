//! One source for every broker, so that the engine is compiled once.

use std::sync::Arc;
use std::time::Duration;

use oncebox::counters::Depth;
#[cfg(feature = "brokers")]
use oncebox::kafka::{KafkaReceipt, KafkaSource, Start};
#[cfg(feature = "brokers")]
use oncebox::nats::{JetStreamReceipt, JetStreamSource, NewConsumer};
use oncebox::queue::QueueStore;
#[cfg(feature = "brokers")]
use oncebox::rabbitmq::{QueueKind, Rabbit, RabbitReceipt, RabbitSource};
use oncebox::source::SourceCapabilities;
use oncebox::{ConsumerId, Delivery, Queue, QueueReceipt, Release, Source, SourceError, StoreError};

#[cfg(feature = "brokers")]
use crate::file::StartSpec;
use crate::file::{ConsumerSpec, Pipeline};
use crate::place::Origin;

/// Where the messages of one consumer come from.
pub(crate) enum Feed<S: QueueStore> {
    Queue(Box<Queue<S>>),
    #[cfg(feature = "brokers")]
    RabbitMq(Box<RabbitSource>),
    #[cfg(feature = "brokers")]
    Nats(Box<JetStreamSource>),
    #[cfg(feature = "brokers")]
    Kafka(Box<KafkaSource>),
}

/// A receipt of one of them.
pub(crate) enum FeedReceipt {
    Queue(Arc<QueueReceipt>),
    #[cfg(feature = "brokers")]
    RabbitMq(Arc<RabbitReceipt>),
    #[cfg(feature = "brokers")]
    Nats(Arc<JetStreamReceipt>),
    #[cfg(feature = "brokers")]
    Kafka(Arc<KafkaReceipt>),
}

impl FeedReceipt {
    #[cfg_attr(not(feature = "brokers"), allow(irrefutable_let_patterns, reason = "then there is no other"))]
    fn queue(&self) -> Option<&Arc<QueueReceipt>> {
        if let Self::Queue(receipt) = self { Some(receipt) } else { None }
    }

    #[cfg(feature = "brokers")]
    fn rabbitmq(&self) -> Option<&Arc<RabbitReceipt>> {
        if let Self::RabbitMq(receipt) = self { Some(receipt) } else { None }
    }

    #[cfg(feature = "brokers")]
    fn nats(&self) -> Option<&Arc<JetStreamReceipt>> {
        if let Self::Nats(receipt) = self { Some(receipt) } else { None }
    }

    #[cfg(feature = "brokers")]
    fn kafka(&self) -> Option<&Arc<KafkaReceipt>> {
        if let Self::Kafka(receipt) = self { Some(receipt) } else { None }
    }
}

/// Deliveries as their source gave them.
fn inner<R>(deliveries: Vec<Delivery<FeedReceipt>>, pick: fn(&FeedReceipt) -> Option<&Arc<R>>) -> Vec<Delivery<R>> {
    deliveries.into_iter().filter_map(|delivery| delivery.exchange(|receipt| pick(&receipt).cloned())).collect()
}

/// Deliveries as the engine has them.
fn outer<R>(deliveries: Vec<Delivery<R>>, wrap: fn(Arc<R>) -> FeedReceipt) -> Vec<Delivery<FeedReceipt>> {
    deliveries.into_iter().filter_map(|delivery| delivery.exchange(|receipt| Some(Arc::new(wrap(receipt))))).collect()
}

fn shared<R>(receipts: &[Arc<FeedReceipt>], pick: fn(&FeedReceipt) -> Option<&Arc<R>>) -> Vec<Arc<R>> {
    receipts.iter().filter_map(|receipt| pick(receipt).cloned()).collect()
}

fn borrowed<'r, R>(receipts: &[&'r FeedReceipt], pick: fn(&FeedReceipt) -> Option<&Arc<R>>) -> Vec<&'r R> {
    receipts.iter().filter_map(|receipt| pick(receipt).map(Arc::as_ref)).collect()
}

/// The same for whichever source it is: `$source` is it, `$pick` gets its receipt out, `$wrap` in.
macro_rules! whichever {
    ($feed:expr, |$source:ident, $pick:ident, $wrap:ident| $body:expr) => {
        match $feed {
            Feed::Queue($source) => {
                let ($pick, $wrap) = (FeedReceipt::queue, FeedReceipt::Queue);
                $body
            }
            #[cfg(feature = "brokers")]
            Feed::RabbitMq($source) => {
                let ($pick, $wrap) = (FeedReceipt::rabbitmq, FeedReceipt::RabbitMq);
                $body
            }
            #[cfg(feature = "brokers")]
            Feed::Nats($source) => {
                let ($pick, $wrap) = (FeedReceipt::nats, FeedReceipt::Nats);
                $body
            }
            #[cfg(feature = "brokers")]
            Feed::Kafka($source) => {
                let ($pick, $wrap) = (FeedReceipt::kafka, FeedReceipt::Kafka);
                $body
            }
        }
    };
}

impl<S: QueueStore> Feed<S> {
    /// The source that a consumer of the file names; or why there is none.
    pub(crate) fn new(spec: &ConsumerSpec, store: &S, pipeline: &Pipeline) -> Result<Self, String> {
        let ordered = spec.order_by.is_some();
        let Origin::Queue(name) = &spec.from else { return Self::of_broker(spec, ordered, pipeline) };
        let queue = if ordered { Queue::ordered(store.clone(), name) } else { Queue::new(store.clone(), name) };
        queue.map(|queue| Self::Queue(Box::new(queue))).map_err(|error| error.to_string())
    }

    #[cfg(not(feature = "brokers"))]
    fn of_broker(_: &ConsumerSpec, _: bool, _: &Pipeline) -> Result<Self, String> {
        Err(NO_BROKERS.to_owned())
    }

    #[cfg(feature = "brokers")]
    fn of_broker(spec: &ConsumerSpec, ordered: bool, pipeline: &Pipeline) -> Result<Self, String> {
        Ok(match &spec.from {
            Origin::Queue(_) => return Err("a queue is no broker".to_owned()),
            Origin::RabbitMq { url, queue } => {
                let source = Rabbit::new(url).source(queue);
                let source = if spec.create { source.declare(QueueKind::Quorum) } else { source };
                Self::RabbitMq(Box::new(if ordered { source.single_active() } else { source }))
            }
            Origin::Nats { url, stream, durable } => {
                let durable = durable.as_deref().unwrap_or(&spec.name);
                let source = JetStreamSource::new(url.as_str(), stream, durable);
                let source = if spec.create { source.create(NewConsumer::default()) } else { source };
                Self::Nats(Box::new(if ordered { source.ordered() } else { source }))
            }
            Origin::Kafka { servers, topic } => {
                let source = KafkaSource::new(servers, &spec.name, topic);
                let source = match spec.start {
                    StartSpec::Stop => source,
                    StartSpec::Beginning => source.start_from(Start::Beginning),
                    StartSpec::End => source.start_from(Start::End),
                };
                let set = |source: KafkaSource, (name, value): &(String, String)| source.setting(name, value);
                Self::Kafka(Box::new(pipeline.kafka.0.iter().fold(source, set)))
            }
        })
    }
}

/// What a build without brokers says of them.
#[cfg(not(feature = "brokers"))]
pub(crate) const NO_BROKERS: &str = "this build knows no brokers; build it with the feature `brokers`";

impl<S: QueueStore> Source<S> for Feed<S> {
    type Receipt = FeedReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        whichever!(self, |source, _pick, _wrap| Source::<S>::capabilities(source.as_ref()))
    }

    fn destination(&self) -> &str {
        whichever!(self, |source, _pick, _wrap| Source::<S>::destination(source.as_ref()))
    }

    fn serve(&self, consumer: ConsumerId) {
        whichever!(self, |source, _pick, _wrap| Source::<S>::serve(source.as_ref(), consumer));
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        whichever!(self, |source, _pick, _wrap| source.open(store).await)
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<FeedReceipt>>, SourceError> {
        whichever!(self, |source, _pick, wrap| Ok(outer(Source::<S>::receive(source.as_ref(), max, wait).await?, wrap)))
    }

    async fn done_in(&self, tx: &mut S::Tx, receipts: &[&FeedReceipt]) -> Result<Vec<bool>, StoreError> {
        whichever!(self, |source, pick, _wrap| Source::<S>::done_in(source.as_ref(), tx, &borrowed(receipts, pick))
            .await)
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&FeedReceipt]) -> Result<(), StoreError> {
        whichever!(self, |source, pick, _wrap| Source::<S>::ack_in(source.as_ref(), tx, &borrowed(receipts, pick))
            .await)
    }

    async fn ack(&self, deliveries: Vec<Delivery<FeedReceipt>>) -> Result<(), SourceError> {
        whichever!(self, |source, pick, _wrap| Source::<S>::ack(source.as_ref(), inner(deliveries, pick)).await)
    }

    async fn release(&self, deliveries: Vec<Delivery<FeedReceipt>>, release: Release) -> Result<(), SourceError> {
        whichever!(self, |source, pick, _wrap| {
            Source::<S>::release(source.as_ref(), inner(deliveries, pick), release).await
        })
    }

    async fn extend(&self, receipts: &[Arc<FeedReceipt>]) -> Result<(), SourceError> {
        whichever!(self, |source, pick, _wrap| Source::<S>::extend(source.as_ref(), &shared(receipts, pick)).await)
    }

    async fn backlog(&self) -> Result<Option<Depth>, SourceError> {
        whichever!(self, |source, _pick, _wrap| Source::<S>::backlog(source.as_ref()).await)
    }

    async fn close(&self) {
        whichever!(self, |source, _pick, _wrap| Source::<S>::close(source.as_ref()).await);
    }
}
