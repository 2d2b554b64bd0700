//! What a queue is like, for those who check a set-up.
//!
//! Over AMQP the settings of a queue can't be read. But declaring it again as it is changes nothing, and where something
//! differs, the broker names it and says what it is:
//!
//! ```text
//!  declare {}                      ─▶ 406 inequivalent arg 'x-queue-type' …: received none but current is the value 'quorum' …
//!  declare {x-queue-type: quorum}  ─▶ 406 inequivalent arg 'x-delivery-limit' …: received none but current is the value '5' …
//!  declare {both}                  ─▶ ok: this is all of it
//! ```
//!
//! So each answer is taken up into the next question, until the broker agrees. What a policy adds stays unseen.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use oncebox_core::SourceError;
use oncebox_core::message::Shown;

use crate::error::{Trouble, is_missing, soft};
use crate::link::{Link, within};
use crate::rabbit::Rabbit;
use crate::topology::{DEAD_KEY, QueueSpec, look_at_queue};

/// Brokers know some twenty arguments of a queue.
const QUESTIONS_MAX: usize = 32;

/// What the broker says of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueFacts {
    /// How many messages are ready in it.
    pub messages: u64,
    /// How many consumers read it.
    pub consumers: u32,
    /// Whether it outlives a restart of the broker; `None`: the broker did not say.
    pub durable: Option<bool>,
    /// The arguments that it was declared with, by name, as texts: `x-queue-type` is `quorum`.
    pub arguments: BTreeMap<String, String>,
    /// Why there may be more to know, if there may; otherwise all of it is known, but for what policies add.
    pub unseen: Option<String>,
}

impl QueueFacts {
    /// The argument of this name.
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).map(String::as_str)
    }

    /// An argument that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.argument(name)?.parse().ok()
    }

    /// An argument in milliseconds.
    pub fn millis(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }

    /// `quorum`, `classic` or `stream`.
    pub fn kind(&self) -> &str {
        self.argument("x-queue-type").unwrap_or("classic")
    }
}

/// Asks the broker about a queue, which is neither created nor changed; `None`: it is not there.
pub async fn inspect(rabbit: &Rabbit, queue: &str) -> Result<Option<QueueFacts>, SourceError> {
    let attempted = || format!("look at queue {queue} of {rabbit}");
    look(rabbit, &QueueSpec::named(queue)).await.map_err(|trouble| trouble.of_source(attempted()))
}

pub(crate) async fn look(rabbit: &Rabbit, spec: &QueueSpec) -> Result<Option<QueueFacts>, Trouble> {
    let name = spec.queue()?;
    let link = Link::connect(rabbit).await?;
    let found = learn(rabbit, &link, name, &spec.dead_queue()).await;
    link.close().await;
    found
}

async fn learn(
    rabbit: &Rabbit,
    link: &Link,
    name: ShortString,
    dead_queue: &str,
) -> Result<Option<QueueFacts>, Trouble> {
    let mut facts = QueueFacts::default();
    let mut table = FieldTable::default();
    let mut options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    for _ in 0..QUESTIONS_MAX {
        // Before each question: a queue that is gone would be made by it.
        let there = within(rabbit, async { Ok(look_at_queue(&link.connection, name.clone()).await) }).await?;
        match there {
            Ok(there) => (facts.messages, facts.consumers) = (there.message_count().into(), there.consumer_count()),
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let (channel, question) = (link.connection.create_channel(), (name.clone(), table.clone()));
        let answer = within(rabbit, async {
            let channel = channel.await?;
            Ok(match channel.queue_declare(question.0, options, question.1).await {
                Ok(_) => {
                    channel.close(200, "OK".into()).await?;
                    Ok(())
                }
                // The broker has closed the channel.
                Err(error) => Err(error),
            })
        });
        let Err(error) = answer.await? else {
            facts.durable = Some(options.durable);
            return Ok(Some(facts));
        };
        let Some(said) = soft(&error).map(|said| said.get_message().as_str()) else { return Err(error.into()) };
        match Differs::read(said) {
            Some(Differs { what: "durable", .. }) if options.durable => options.durable = false,
            Some(Differs { what: "auto_delete", .. }) if !options.auto_delete => options.auto_delete = true,
            Some(Differs { what, is: Some((value, kind)) }) if !facts.arguments.contains_key(what) => {
                let Some(known) = amqp(value, kind) else { return Ok(Some(unseen(facts, said))) };
                table.insert(what.into(), known);
                facts.arguments.insert(what.to_owned(), value.to_owned());
                continue;
            }
            // An answer ends after 255 bytes, and this one holds a name twice: it is asked whether it is the one we give.
            _ if said.contains(&format!("inequivalent arg '{DEAD_KEY}'"))
                && !facts.arguments.contains_key(DEAD_KEY) =>
            {
                table.insert(DEAD_KEY.into(), AMQPValue::LongString(dead_queue.into()));
                facts.arguments.insert(DEAD_KEY.to_owned(), dead_queue.to_owned());
            }
            _ => return Ok(Some(unseen(facts, said))),
        }
    }
    Ok(Some(unseen(facts, "the broker named more arguments than there are")))
}

fn unseen(mut facts: QueueFacts, said: &str) -> QueueFacts {
    facts.unseen = Some(Shown(said).to_string());
    facts
}

/// What the broker says differs between a question and the queue.
#[derive(Debug, PartialEq, Eq)]
struct Differs<'s> {
    what: &'s str,
    /// Value and type of what the queue has; `None`: it has none.
    is: Option<(&'s str, &'s str)>,
}

impl<'s> Differs<'s> {
    /// Reads `PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received none but current
    /// is the value 'quorum' of type 'longstr'`.
    fn read(said: &'s str) -> Option<Self> {
        let (_, rest) = said.split_once("inequivalent arg '")?;
        let (what, rest) = rest.split_once('\'')?;
        let (_, current) = rest.rsplit_once("but current is ")?;
        let is = current.strip_prefix("the value '").and_then(|current| current.split_once("' of type '"));
        Some(Self { what, is: is.map(|(value, kind)| (value, kind.trim_end_matches('\''))) })
    }
}

/// The value as it was declared: another type is another value.
fn amqp(value: &str, kind: &str) -> Option<AMQPValue> {
    Some(match kind {
        "longstr" => AMQPValue::LongString(value.into()),
        "bool" => AMQPValue::Boolean(value.parse().ok()?),
        "byte" => AMQPValue::ShortShortInt(value.parse().ok()?),
        "unsignedbyte" => AMQPValue::ShortShortUInt(value.parse().ok()?),
        "short" => AMQPValue::ShortInt(value.parse().ok()?),
        "unsignedshort" => AMQPValue::ShortUInt(value.parse().ok()?),
        "signedint" => AMQPValue::LongInt(value.parse().ok()?),
        "unsignedint" => AMQPValue::LongUInt(value.parse().ok()?),
        "long" => AMQPValue::LongLongInt(value.parse().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_s_answer_is_read() {
        let said = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'it''s' in vhost '/': received none but \
                    current is the value 'quorum' of type 'longstr'";
        assert_eq!(Differs::read(said), Some(Differs { what: "x-queue-type", is: Some(("quorum", "longstr")) }));
        let said = "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current \
                    is 'false'";
        assert_eq!(Differs::read(said), Some(Differs { what: "durable", is: None }));
        assert_eq!(Differs::read("ACCESS_REFUSED - access to queue 'q' refused"), None);
    }
}
