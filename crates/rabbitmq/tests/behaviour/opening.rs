//! Wrong settings are told apart from outages, and are told without secrets.

use lapin::options::{BasicGetOptions, BasicRejectOptions};
use lapin::types::AMQPValue;
use oncebox_core::{Sink, SinkErrorKind, SourceErrorKind};
use oncebox_rabbitmq::{QueueKind, Rabbit, RabbitSource, inspect};
use oncebox_testkit::eventually;

use crate::Plain;
use crate::common::{Bystander, name, url};

async fn fails(source: RabbitSource, kind: SourceErrorKind, says: &str) {
    let error = source.try_open().await.unwrap_err();
    let said = format!("{error} {error:?} {source:?}");
    assert_eq!(error.kind(), kind, "{said}");
    assert!(said.contains(says), "{said}");
    assert!(!said.contains("CANARY"), "{said}");
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_a_setting() {
    for url in ["", "localhost", "http://u:CANARY@localhost", "amqp://u:CANARY@localhost:port"] {
        fails(Rabbit::new(url).source("q"), SourceErrorKind::Configuration, "URL").await;
        let error = Rabbit::new(url).sink().open().await.unwrap_err();
        assert_eq!(error.kind(), SinkErrorKind::Configuration);
        assert!(!error.to_string().contains("CANARY"), "{error}");
    }
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn tls_that_is_not_compiled_in_is_a_setting() {
    fails(Rabbit::new("amqps://u:CANARY@localhost").source("q"), SourceErrorKind::Configuration, "feature").await;
}

#[tokio::test]
async fn nobody_there_is_an_outage() {
    // Bound and dropped: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rabbit = Rabbit::new(format!("amqp://u:CANARY@127.0.0.1:{port}/%2f"));
    fails(rabbit.source("q"), SourceErrorKind::Unavailable, &port.to_string()).await;
    let error = rabbit.sink().open().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn wrong_credentials_and_virtual_hosts_are_settings() {
    let Some(url) = url("opening::wrong_credentials_and_virtual_hosts_are_settings") else { return };
    let (_, host) = url.split_once('@').unwrap();
    let rabbit = Rabbit::new(format!("amqp://guest:CANARY@{host}"));
    fails(rabbit.source("q"), SourceErrorKind::Configuration, "ACCESS_REFUSED").await;
    let error = rabbit.sink().open().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Configuration, "{error}");
    let elsewhere = url.replace("%2f", "no-such-vhost");
    fails(Rabbit::new(elsewhere).source("q"), SourceErrorKind::Configuration, "no-such-vhost").await;
}

#[tokio::test]
async fn a_missing_queue_is_a_setting_and_is_not_created() {
    let test = "opening::a_missing_queue_is_a_setting_and_is_not_created";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("missing");
    for _ in 0..2 {
        // Twice: had the first attempt created it, the second would succeed.
        fails(bystander.rabbit().source(queue.as_str()), SourceErrorKind::Configuration, &queue).await;
        fails(bystander.rabbit().source(queue.as_str()).single_active(), SourceErrorKind::Configuration, &queue).await;
    }
    bystander.rabbit().source(queue.as_str()).declare(QueueKind::Classic).start().await.end().await;
    bystander.rabbit().source(queue.as_str()).start().await.end().await;
}

#[tokio::test]
async fn impossible_names_and_bounds_are_settings() {
    let Some(url) = url("opening::impossible_names_and_bounds_are_settings") else { return };
    let rabbit = Rabbit::new(url);
    fails(rabbit.source(""), SourceErrorKind::Configuration, "no name").await;
    fails(rabbit.source("x".repeat(256)), SourceErrorKind::Configuration, "255").await;
    fails(rabbit.source("q").prefetch(0), SourceErrorKind::Configuration, "prefetch").await;
}

#[tokio::test]
async fn a_queue_that_is_something_else_is_a_setting() {
    let Some(bystander) = Bystander::find("opening::a_queue_that_is_something_else_is_a_setting").await else { return };
    let rabbit = bystander.rabbit();
    let quorum = || ("x-queue-type", AMQPValue::LongString("quorum".into()));
    let single = || ("x-single-active-consumer", AMQPValue::Boolean(true));
    let (plain, classic_single, quorum_plain, quorum_single) = (name("p"), name("cs"), name("q"), name("qs"));
    bystander.declare(&plain, &[]).await;
    bystander.declare(&classic_single, &[single()]).await;
    bystander.declare(&quorum_plain, &[quorum()]).await;
    bystander.declare(&quorum_single, &[quorum(), single()]).await;

    for queue in [&plain, &quorum_plain] {
        fails(rabbit.source(queue).single_active(), SourceErrorKind::Configuration, "x-single-active-consumer").await;
    }
    for queue in [&classic_single, &quorum_single] {
        rabbit.source(queue).single_active().start().await.end().await;
    }
    fails(rabbit.source(&plain).kind(QueueKind::Quorum), SourceErrorKind::Configuration, "no quorum queue").await;
    fails(rabbit.source(&quorum_plain).declare(QueueKind::Classic), SourceErrorKind::Configuration, "no classic").await;
    rabbit.source(&plain).kind(QueueKind::Classic).start().await.end().await;
    rabbit.source(&quorum_plain).kind(QueueKind::Quorum).start().await.end().await;
    rabbit.source(&quorum_single).declare(QueueKind::Quorum).single_active().start().await.end().await;
}

#[tokio::test]
async fn a_queue_with_arguments_that_we_know_nothing_of_is_taken_at_its_word() {
    let test = "opening::a_queue_with_arguments_that_we_know_nothing_of_is_taken_at_its_word";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("limited");
    let arguments = [
        ("x-queue-type", AMQPValue::LongString("quorum".into())),
        ("x-single-active-consumer", AMQPValue::Boolean(true)),
        ("x-delivery-limit", AMQPValue::LongInt(5)),
    ];
    bystander.declare(&queue, &arguments).await;
    bystander.rabbit().source(queue).kind(QueueKind::Quorum).single_active().start().await.end().await;
}

/// From RabbitMQ 4 on, a quorum queue gives up what was delivered too often. What we create keeps that.
#[tokio::test]
async fn a_quorum_queue_that_is_created_keeps_what_it_gives_up() {
    let test = "opening::a_quorum_queue_that_is_created_keeps_what_it_gives_up";
    let Some(bystander) = Bystander::find(test).await else { return };
    let (queue, rabbit) = (name("created"), bystander.rabbit());
    let dead = format!("{queue}.dead");
    let source = |queue: &str| rabbit.source(queue).declare(QueueKind::Quorum);
    source(&queue).start().await.end().await;
    let facts = inspect(&rabbit, &queue).await.unwrap().unwrap();
    assert_eq!((facts.kind(), facts.argument("x-dead-letter-routing-key")), ("quorum", Some(dead.as_str())));
    assert_eq!(facts.argument("x-dead-letter-strategy"), Some("at-least-once"));
    assert_eq!(inspect(&rabbit, &dead).await.unwrap().unwrap().kind(), "quorum");

    bystander.publish(&queue, lapin::BasicProperties::default(), b"poison").await;
    let taken = bystander.channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await.unwrap().unwrap();
    taken.reject(BasicRejectOptions { requeue: false }).await.unwrap();
    eventually("it is kept", async || {
        let kept = bystander.channel.basic_get(dead.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap();
        kept.is_some_and(|kept| kept.data == b"poison")
    })
    .await;

    // The next start finds what the first has made, and what was made otherwise is told.
    source(&queue).start().await.end().await;
    fails(rabbit.source(queue.as_str()).kind(QueueKind::Classic), SourceErrorKind::Configuration, "no classic").await;
    fails(source(&queue).single_active(), SourceErrorKind::Configuration, "x-single-active-consumer").await;
    let ordered = name("ordered");
    source(&ordered).single_active().start().await.end().await;
    source(&ordered).single_active().start().await.end().await;
    rabbit.source(&ordered).single_active().start().await.end().await;
    fails(source(&"x".repeat(253)), SourceErrorKind::Configuration, "`.dead` behind it").await;
}
