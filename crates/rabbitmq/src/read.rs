//! What the broker delivered, as a message.

use bytes::Bytes;
use lapin::message::Delivery;
use oncebox_core::cloud_events::{Spelling, text_of};
use oncebox_core::{Message, MessageId, Timestamp};

use crate::field;
use crate::guard::{self, Lost};

/// How quorum queues count earlier deliveries. Not part of the message: it changes with each.
const DELIVERY_COUNT: &str = "x-delivery-count";
/// The same from RabbitMQ 4.3.
const ACQUIRED_COUNT: &str = "x-acquired-count";

/// The message, without what is in `lost`, which could not be read and comes along under names of our own. Identity:
/// CloudEvents, else the header `oncebox-id`, else the property `message-id`. Type: CloudEvents, else the property `type`,
/// else the routing key. Those tell messages apart, so what is not UTF-8 there has a text that stands for it.
pub(crate) fn message(delivery: &mut Delivery, lost: Lost, queue: &str, now: Timestamp) -> Message {
    let payload = Bytes::from(std::mem::take(&mut delivery.data));
    let properties = &delivery.properties;
    let text = |property: &Option<lapin::types::ShortString>| property.as_ref().map(ToString::to_string);
    let unread = |what| guard::unread(&lost, what).map(|bytes| text_of(bytes).into_owned());
    let said = |what, read: &lapin::types::ShortString| unread(what).unwrap_or_else(|| read.to_string());
    let kind = text(properties.kind())
        .or_else(|| unread("type"))
        .into_iter()
        .chain([said("routing-key", &delivery.routing_key), said("exchange", &delivery.exchange)])
        .find(|kind| !kind.is_empty())
        .unwrap_or_else(|| queue.to_owned());
    let made = properties.timestamp().and_then(|at| Timestamp::from_second(i64::try_from(at).ok()?).ok());

    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, property) in [
        ("content-type", properties.content_type()),
        ("content-encoding", properties.content_encoding()),
        ("correlation-id", properties.correlation_id()),
        ("reply-to", properties.reply_to()),
        ("app-id", properties.app_id()),
    ] {
        headers.extend(text(property).map(|value| (name.to_owned(), value.into_bytes())));
    }
    for (name, value) in properties.headers().iter().flatten() {
        let name = name.as_str();
        if ![DELIVERY_COUNT, ACQUIRED_COUNT].contains(&name) && !guard::is_mark(name) {
            headers.extend(field::values(value).into_iter().map(|value| (name.to_owned(), value)));
        }
    }
    let id = text(properties.message_id()).or_else(|| unread("message-id"));
    headers.extend(lost);
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    let mut message = Spelling::AMQP.read(pairs, payload, &kind, made.unwrap_or(now));
    if message.id.is_none() {
        message.id = id.and_then(|id| MessageId::new(id).ok());
    }
    message
}

/// Whether it was delivered before, and nothing says how often.
pub(crate) fn is_uncounted(delivery: &Delivery) -> bool {
    delivery.redelivered && earlier(delivery).is_none()
}

/// How often it was delivered before, where the queue counts.
fn earlier(delivery: &Delivery) -> Option<u64> {
    let headers = delivery.properties.headers().as_ref()?;
    let count = |name| headers.inner().get(name).and_then(field::number);
    count(DELIVERY_COUNT).max(count(ACQUIRED_COUNT))
}

/// How often it was delivered, this time included. `counted`: the queue counts; a queue that does not knows at most that it
/// was delivered before.
pub(crate) fn count(delivery: &Delivery, counted: bool) -> Option<u32> {
    match (earlier(delivery), delivery.redelivered) {
        (Some(earlier), _) => Some(u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1)),
        (None, true) => Some(2),
        (None, false) => counted.then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;

    fn delivery(properties: BasicProperties, headers: &[(&str, &str)]) -> Delivery {
        let mut delivery = Delivery::mock(1, "shop".into(), "order.paid".into(), false, b"{}".to_vec());
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        delivery.properties = properties.with_headers(table);
        delivery
    }

    fn read(properties: BasicProperties, headers: &[(&str, &str)]) -> Message {
        message(&mut delivery(properties, headers), Lost::new(), "queue", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn identity_is_looked_for_in_order() {
        let properties = || BasicProperties::default().with_message_id("property".into());
        let id = |headers: &[(&str, &str)]| read(properties(), headers).id.unwrap().as_str().to_owned();
        assert_eq!(id(&[]), "property");
        assert_eq!(id(&[("oncebox-id", "header")]), "header");
        assert_eq!(id(&[("oncebox-id", "header"), ("cloudEvents:id", "event")]), "event");
        assert_eq!(id(&[("cloudEvents_id", "event")]), "event");
        assert_eq!(read(BasicProperties::default(), &[]).id, None);
    }

    #[test]
    fn a_type_is_found_wherever_it_is() {
        let properties = || BasicProperties::default().with_type("property".into());
        assert_eq!(read(properties(), &[("cloudEvents:type", "event")]).kind, "event");
        assert_eq!(read(properties(), &[]).kind, "property");
        assert_eq!(read(BasicProperties::default(), &[]).kind, "order.paid");
        let mut nameless = Delivery::mock(1, "".into(), "".into(), false, Vec::new());
        assert_eq!(message(&mut nameless, Lost::new(), "queue", Timestamp::UNIX_EPOCH).kind, "queue");
    }

    #[test]
    fn properties_travel_as_headers_and_counts_do_not() {
        let mut delivery = delivery(BasicProperties::default().with_correlation_id("c".into()), &[("x", "y")]);
        let mut table = delivery.properties.headers().clone().unwrap();
        table.insert("x-delivery-count".into(), AMQPValue::LongLongInt(4));
        delivery.properties = delivery.properties.clone().with_headers(table);
        assert_eq!(count(&delivery, true), Some(5));
        let message = message(&mut delivery, Lost::new(), "queue", Timestamp::UNIX_EPOCH);
        assert_eq!(message.headers.iter().collect::<Vec<_>>(), [("correlation-id", "c"), ("x", "y")]);
    }

    #[test]
    fn a_queue_that_does_not_count_knows_a_redelivery() {
        let mut delivery = delivery(BasicProperties::default(), &[]);
        assert_eq!((count(&delivery, true), count(&delivery, false)), (Some(1), None));
        assert!(!is_uncounted(&delivery));
        delivery.redelivered = true;
        assert_eq!((count(&delivery, true), count(&delivery, false)), (Some(2), Some(2)));
        assert!(is_uncounted(&delivery));
    }
}
