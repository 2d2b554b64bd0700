//! Where a message goes: an exchange and a routing key, from one text.

use lapin::types::ShortString;
use oncebox_core::message::Shown;

/// An exchange with a routing key.
///
/// | topic | exchange | routing key |
/// | --- | --- | --- |
/// | `orders` | the default one | `orders`: the queue of that name |
/// | `shop/order.paid` | `shop` | `order.paid` |
/// | `shop/` | `shop` | none, as for a fanout |
/// | `shop/a/b` | `shop` | `a/b` |
/// | `/a/b` | the default one | `a/b` |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
}

impl Topic {
    /// Reads a topic; an error says why no broker will ever take it.
    pub(crate) fn parse(topic: &str) -> Result<Self, String> {
        let (exchange, routing_key) = topic.split_once('/').unwrap_or(("", topic));
        if exchange.is_empty() && routing_key.is_empty() {
            return Err(
                "its topic names neither an exchange nor a queue; write exchange/routing-key or a queue".to_owned()
            );
        }
        let short = |what: &str, text: &str| {
            ShortString::try_new(text)
                .map_err(|_| format!("the {what} in its topic has {} bytes, and AMQP allows 255", text.len()))
        };
        Ok(Self { exchange: short("exchange", exchange)?, routing_key: short("routing key", routing_key)? })
    }

    /// How people name it.
    pub(crate) fn shown(&self) -> String {
        let (exchange, routing_key) = (Shown(self.exchange.as_str()), Shown(self.routing_key.as_str()));
        match (self.exchange.as_str(), self.routing_key.as_str().contains('/')) {
            ("", false) => format!("{routing_key} (the queue, by the default exchange)"),
            ("", true) => format!("/{routing_key} (the queue, by the default exchange)"),
            _ => format!("{exchange}/{routing_key} (exchange and routing key)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_as_documented() {
        for (topic, exchange, routing_key) in [
            ("orders", "", "orders"),
            ("shop/order.paid", "shop", "order.paid"),
            ("shop/", "shop", ""),
            ("shop/a/b", "shop", "a/b"),
            ("/a/b", "", "a/b"),
        ] {
            let read = Topic::parse(topic).unwrap();
            assert_eq!((read.exchange.as_str(), read.routing_key.as_str()), (exchange, routing_key));
        }
    }

    #[test]
    fn impossible_topics_are_refused() {
        let long = "x".repeat(256);
        for topic in ["", "/", &long, &format!("{long}/a"), &format!("a/{long}")] {
            assert!(Topic::parse(topic).is_err(), "{} bytes", topic.len());
        }
    }
}
