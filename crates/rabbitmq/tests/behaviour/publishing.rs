//! What can go wrong with one message, and must not with the others.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::ExchangeDeleteOptions;
use lapin::types::AMQPValue;
use oncebox_core::cloud_events::STRUCTURED;
use oncebox_core::{Message, MessageId, Outgoing, Sink, SinkError, SinkErrorKind};
use oncebox_rabbitmq::RabbitSink;

use crate::common::{Bystander, name};

fn to(topic: &str, text: &str) -> Outgoing {
    Outgoing { topic: topic.to_owned(), message: Arc::new(Message::new("noted").with_payload(text.to_owned())) }
}

fn kinds(answers: &[Result<(), SinkError>]) -> Vec<Option<SinkErrorKind>> {
    answers.iter().map(|answer| answer.as_ref().err().map(SinkError::kind)).collect()
}

async fn texts(bystander: &Bystander, queue: &str) -> Vec<String> {
    let taken = bystander.take_all(queue).await;
    taken.into_iter().map(|delivery| String::from_utf8(delivery.data).unwrap()).collect()
}

async fn open(sink: RabbitSink) -> RabbitSink {
    sink.open().await.unwrap();
    sink
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_is_deleted_later_harms_only_its_own_messages() {
    let test = "publishing::an_exchange_that_is_deleted_later_harms_only_its_own_messages";
    let Some(bystander) = Bystander::find(test).await else { return };
    let (queue, exchange) = (name("isolated"), name("exchange"));
    bystander.declare(&queue, &[]).await;
    bystander.exchange(&exchange, &queue).await;
    let sink = open(bystander.rabbit().sink()).await;
    let there = format!("{exchange}/a");
    // Seen once, it is not looked for again.
    assert_eq!(sink.publish(&[to(&there, "0")]).await, [Ok(())]);
    bystander.channel.exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    let batch: Vec<Outgoing> = (0..20).map(|n| to(if n % 5 == 3 { &there } else { &queue }, &n.to_string())).collect();
    let answers = sink.publish(&batch).await;
    for (n, kind) in kinds(&answers).into_iter().enumerate() {
        match kind {
            Some(kind) if n % 5 == 3 => assert_eq!(kind, SinkErrorKind::Configuration),
            // Before the first that closed the channel: sent, and not heard of.
            Some(kind) => assert!(n < 3 && kind == SinkErrorKind::Unavailable, "{n}: {:?}", answers[n]),
            None => assert_ne!(n % 5, 3),
        }
    }
    let said = answers[3].as_ref().unwrap_err().to_string();
    assert!(said.contains(&exchange), "{said}");
    let arrived = texts(&bystander, &queue).await;
    for n in (3..20).filter(|n| n % 5 != 3) {
        assert_eq!(arrived.iter().filter(|text| **text == n.to_string()).count(), 1, "{n} once: {arrived:?}");
    }
    assert_eq!(
        kinds(&sink.publish(&[to(&there, "x"), to(&queue, "y")]).await),
        [Some(SinkErrorKind::Configuration), None]
    );
}

/// The client agrees when the broker closes a channel, sends what it still had queued for it, and the broker ends the
/// connection over that: soon after, when what is behind is on its way again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_a_closed_channel_is_not_lost_with_the_connection() {
    let test = "publishing::what_is_behind_a_closed_channel_is_not_lost_with_the_connection";
    let Some(bystander) = Bystander::find(test).await else { return };
    let (queue, exchange) = (name("behind"), name("exchange"));
    bystander.declare(&queue, &[]).await;
    let sink = open(bystander.rabbit().sink()).await;
    let there = format!("{exchange}/a");
    let rounds = 40;
    for round in 0..rounds {
        bystander.exchange(&exchange, &queue).await;
        assert_eq!(sink.publish(&[to(&there, "seen")]).await, [Ok(())]);
        bystander.channel.exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
        let batch: Vec<Outgoing> = (0..20 + round).map(|n| to(if n == 0 { &there } else { &queue }, "x")).collect();
        let answers = sink.publish(&batch).await;
        assert_eq!(answers[0].as_ref().map_err(SinkError::kind), Err(SinkErrorKind::Configuration));
        assert!(
            answers[1..].iter().all(Result::is_ok),
            "round {round}: {:?}",
            answers[1..].iter().find(|a| a.is_err())
        );
    }
    let published: usize = (0..rounds).map(|round| 20 + round).sum();
    assert_eq!(texts(&bystander, &queue).await.len(), published);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_is_bound_for_is_an_error_that_names_it() {
    let test = "publishing::what_nobody_is_bound_for_is_an_error_that_names_it";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("routed");
    bystander.declare(&queue, &[]).await;
    let sink = open(bystander.rabbit().sink()).await;
    let answers = sink.publish(&[to("amq.direct/CANARY-key", "secret"), to(&queue, "1")]).await;
    assert_eq!(kinds(&answers), [Some(SinkErrorKind::Configuration), None]);
    let said = answers[0].as_ref().unwrap_err().to_string();
    assert!(said.contains("amq.direct/CANARY-key") && !said.contains("secret"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_amqp_cannot_carry_is_refused_and_harms_no_other() {
    let test = "publishing::what_amqp_cannot_carry_is_refused_and_harms_no_other";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("refused");
    bystander.declare(&queue, &[]).await;
    let sink = open(bystander.rabbit().sink().message_bytes_max(1000)).await;
    let with_header = |name: String, value: String| {
        let mut message = Message::new("noted");
        message.headers.add(name, value).unwrap();
        Outgoing { topic: queue.clone(), message: Arc::new(message) }
    };
    let batch = [
        to(&queue, "before"),
        to("", "no topic"),
        to(&"x".repeat(256), "a long queue"),
        to(&format!("{}/a", "x".repeat(256)), "a long exchange"),
        to(&queue, &"x".repeat(1001)),
        with_header("n".repeat(256), "v".to_owned()),
        // More than a frame holds: it would cost the connection.
        with_header("n".to_owned(), "v".repeat(200_000)),
        to(&queue, "after"),
    ];
    let answers = sink.publish(&batch).await;
    let refused = Some(SinkErrorKind::Refused);
    assert_eq!(kinds(&answers), [None, refused, refused, refused, refused, refused, refused, None]);
    assert_eq!(texts(&bystander, &queue).await, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_finds_too_large_is_refused_and_harms_no_other() {
    let test = "publishing::what_the_broker_finds_too_large_is_refused_and_harms_no_other";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("huge");
    bystander.declare(&queue, &[]).await;
    let bytes = 134_217_728 + 1;
    let sink = open(bystander.rabbit().sink().message_bytes_max(2 * bytes)).await;
    let batch = [to(&queue, &"x".repeat(bytes)), to(&queue, "after")];
    assert_eq!(kinds(&sink.publish(&batch).await), [Some(SinkErrorKind::Refused), None]);
    assert_eq!(texts(&bystander, &queue).await, ["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_an_outage_of_its_own_messages() {
    let test = "publishing::a_full_queue_is_an_outage_of_its_own_messages";
    let Some(bystander) = Bystander::find(test).await else { return };
    let (full, roomy) = (name("full"), name("roomy"));
    let reject = ("x-overflow", AMQPValue::LongString("reject-publish".into()));
    bystander.declare(&full, &[("x-max-length", AMQPValue::LongInt(1)), reject]).await;
    bystander.declare(&roomy, &[]).await;
    let sink = open(bystander.rabbit().sink()).await;
    assert_eq!(sink.publish(&[to(&full, "1")]).await, [Ok(())]);
    let answers = sink.publish(&[to(&full, "2"), to(&roomy, "3")]).await;
    assert_eq!(kinds(&answers), [Some(SinkErrorKind::Unavailable), None]);
    bystander.take_all(&full).await;
    assert_eq!(sink.publish(&[to(&full, "2")]).await, [Ok(())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn others_find_what_they_look_for_in_properties() {
    let test = "publishing::others_find_what_they_look_for_in_properties";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("properties");
    bystander.declare(&queue, &[]).await;
    let message = Message::new("invoice.paid").with_id(MessageId::new("i-1").unwrap()).with_payload(r#"{"a":1}"#);
    let outgoing = [Outgoing { topic: queue.clone(), message: Arc::new(message) }];
    let binary = open(bystander.rabbit().sink().source("/billing")).await;
    let structured = open(bystander.rabbit().sink().source("/billing").structured()).await;
    assert_eq!(binary.publish(&outgoing).await, [Ok(())]);
    assert_eq!(structured.publish(&outgoing).await, [Ok(())]);
    let got = bystander.take_all(&queue).await;
    for delivery in &got {
        let properties = &delivery.properties;
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "i-1");
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), "invoice.paid");
        assert_eq!(*properties.delivery_mode(), Some(2));
        assert!(properties.timestamp().is_some());
    }
    let headers = got[0].properties.headers().clone().unwrap();
    let header = |name: &str| headers.inner()[name].as_long_string().unwrap().to_string();
    assert_eq!((header("cloudEvents:id").as_str(), header("cloudEvents:source").as_str()), ("i-1", "/billing"));
    assert_eq!(got[0].data, br#"{"a":1}"#);
    assert_eq!(got[1].properties.content_type().as_ref().unwrap().as_str(), STRUCTURED);
    let event = String::from_utf8(got[1].data.clone()).unwrap();
    for part in [r#""data":{"a":1}"#, r#""id":"i-1""#, r#""source":"/billing""#] {
        assert!(event.contains(part), "{event}");
    }
}

/// The broker names the exchange in 252 bytes, and cuts its name in the middle of a letter.
#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_with_a_long_name_harms_only_its_own_messages() {
    let test = "publishing::an_exchange_with_a_long_name_harms_only_its_own_messages";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("long");
    bystander.declare(&queue, &[]).await;
    let sink = open(bystander.rabbit().sink()).await;
    for exchange in ["\u{fc}".repeat(120), format!("a{}", "\u{fc}".repeat(120)), "x".repeat(240)] {
        let answers = sink.publish(&[to(&queue, "1"), to(&format!("{exchange}/k"), "2"), to(&queue, "3")]).await;
        assert_eq!(kinds(&answers), [None, Some(SinkErrorKind::Configuration), None], "{answers:?}");
    }
    assert_eq!(texts(&bystander, &queue).await, ["1", "3"].repeat(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn confirms_that_do_not_come_are_an_outage_within_their_time() {
    let test = "publishing::confirms_that_do_not_come_are_an_outage_within_their_time";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("late");
    bystander.declare(&queue, &[]).await;
    let (credentials, server) = bystander.url.split_once('@').unwrap();
    let (server, vhost) = server.split_once('/').unwrap();
    let proxy = oncebox_testkit::proxy::Proxy::start(server.parse().unwrap()).await.unwrap();
    let rabbit = oncebox_rabbitmq::Rabbit::new(format!("{credentials}@{}/{vhost}", proxy.addr()));
    let sink = open(rabbit.sink().confirm_timeout(Duration::from_millis(500))).await;
    proxy.black_hole();
    let start = tokio::time::Instant::now();
    let answers = sink.publish(&[to(&queue, "1"), to(&queue, "2")]).await;
    assert!(start.elapsed() < Duration::from_secs(8), "it took {:?}, and missed heartbeats told it", start.elapsed());
    assert_eq!(kinds(&answers), [Some(SinkErrorKind::Unavailable); 2]);
    proxy.heal();
    oncebox_testkit::eventually("the sink is back", async || sink.publish(&[to(&queue, "3")]).await == [Ok(())]).await;
}
