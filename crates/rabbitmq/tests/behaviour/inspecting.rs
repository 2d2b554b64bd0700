//! What a queue is like is found out without changing or making one.

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use oncebox_core::SourceErrorKind;
use oncebox_rabbitmq::{Rabbit, inspect};

use crate::common::{Bystander, name, url};

fn table(arguments: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    table
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// Kind, durability and arguments of whatever type.
#[tokio::test]
async fn the_arguments_of_a_queue_are_found_out() {
    let Some(url) = url("the_arguments_of_a_queue_are_found_out") else { return };
    let bystander = Bystander::connect(&url).await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let passing = QueueDeclareOptions { auto_delete: true, ..QueueDeclareOptions::default() };
    let quorum = [
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongInt(5)),
        ("x-dead-letter-exchange", text("amq.fanout")),
        ("x-dead-letter-routing-key", text("it's 'dead'")),
        ("x-single-active-consumer", AMQPValue::Boolean(true)),
    ];
    let classic = [("x-message-ttl", AMQPValue::LongLongInt(60_000)), ("x-max-length", AMQPValue::ShortInt(10))];
    for (options, arguments, kind) in [
        (durable, &quorum[..], "quorum"),
        (durable, &[][..], "classic"),
        (passing, &classic[..], "classic"),
        (durable, &[("x-queue-type", text("classic"))][..], "classic"),
    ] {
        let queue = name("inspected");
        bystander.channel.queue_declare(queue.as_str().into(), options, table(arguments)).await.unwrap();
        let facts = inspect(&Rabbit::new(&url), &queue).await.unwrap().unwrap();
        assert_eq!((facts.kind(), facts.durable, &facts.unseen), (kind, Some(options.durable), &None), "{facts:?}");
        // Classic is what a queue is that says nothing.
        let told = arguments.iter().filter(|(_, value)| *value != text("classic"));
        assert_eq!(facts.arguments.len(), told.count(), "{facts:?}");
        if kind == "quorum" {
            assert_eq!((facts.number("x-delivery-limit"), facts.messages), (Some(5), 0));
            assert_eq!(facts.argument("x-dead-letter-routing-key"), Some("it's 'dead'"));
        }
        let deleted = bystander.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await;
        deleted.unwrap();
    }
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_not_made_by_looking() {
    let Some(url) = url("a_queue_that_is_not_there_is_not_made_by_looking") else { return };
    let queue = name("missing");
    let rabbit = Rabbit::new(&url);
    let away = inspect(&Rabbit::new("amqp://u:CANARY@127.0.0.1:1/%2f"), &queue).await.unwrap_err();
    assert!(away.kind() == SourceErrorKind::Unavailable && !away.to_string().contains("CANARY"), "{away}");
    for _ in 0..2 {
        assert_eq!(inspect(&rabbit, &queue).await.unwrap(), None);
    }
}
