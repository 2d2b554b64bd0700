//! Prefetch, hostile messages, lost connections, shutdown.

use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use oncebox_core::SourceErrorKind;
use oncebox_rabbitmq::{QueueKind, Rabbit, RabbitSource};
use oncebox_testkit::eventually;
use oncebox_testkit::proxy::{Proxy, Way};

use crate::common::{Bystander, name};
use crate::{COMES, NOTHING, Plain, take_all, texts};

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

async fn send_numbers(bystander: &Bystander, queue: &str, range: std::ops::Range<usize>) {
    let numbers = numbers(range);
    bystander.send_texts(queue, &numbers.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_are_held_than_the_prefetch_allows() {
    let Some(bystander) = Bystander::find("receiving::no_more_are_held_than_the_prefetch_allows").await else { return };
    let queue = name("prefetch");
    let source = bystander.rabbit().source(queue.as_str()).declare(QueueKind::Classic).prefetch(10).start().await;
    send_numbers(&bystander, &queue, 0..25).await;
    let mut got = take_all(&source, 10).await;
    assert!(source.take(10, NOTHING).await.unwrap().is_empty());
    // Released ones count too, for as long as they wait.
    source.give_back(got.split_off(5), Duration::from_secs(3600)).await;
    assert!(source.take(10, NOTHING).await.unwrap().is_empty());
    assert_eq!(bystander.ready(&queue).await, 15);
    source.settle(got).await;
    assert_eq!(texts(&take_all(&source, 5).await), numbers(10..15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_message_is_counted_and_comes_before_newer_ones() {
    let test = "receiving::a_released_message_is_counted_and_comes_before_newer_ones";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("released");
    let source = bystander.rabbit().source(queue.as_str()).declare(QueueKind::Quorum).start().await;
    send_numbers(&bystander, &queue, 0..6).await;
    let got = take_all(&source, 3).await;
    source.give_back(got, Duration::ZERO).await;
    let again = take_all(&source, 6).await;
    assert_eq!(texts(&again), numbers(0..6));
    let counts: Vec<_> = again.iter().map(|delivery| delivery.count.unwrap()).collect();
    assert_eq!(counts, [2, 2, 2, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_headers_arrive_and_break_nothing() {
    let Some(bystander) = Bystander::find("receiving::hostile_headers_arrive_and_break_nothing").await else { return };
    let queue = name("hostile");
    let source = bystander.rabbit().source(queue.as_str()).declare(QueueKind::Classic).start().await;
    let mut table = FieldTable::default();
    for (name, value) in [
        ("raw", AMQPValue::LongString(vec![0xff, 0, b'\r', b'\n'].into())),
        ("lines", AMQPValue::LongString("a\r\nb".into())),
        ("na\nme", AMQPValue::LongString("v".into())),
        ("", AMQPValue::LongString("nameless".into())),
        ("number", AMQPValue::LongLongInt(-1)),
        ("nothing", AMQPValue::Void),
        ("double", AMQPValue::Double(-0.5)),
        ("table", AMQPValue::FieldTable(FieldTable::default())),
        ("cloudEvents:id", AMQPValue::LongString(vec![0xff].into())),
        ("cloudEvents:time", AMQPValue::LongString("never".into())),
        ("x-delivery-count", AMQPValue::LongString("many".into())),
    ] {
        table.insert(name.into(), value);
    }
    let properties = BasicProperties::default().with_headers(table).with_message_id("m-1".into());
    bystander.publish(&queue, properties.with_timestamp(u64::MAX), b"body").await;
    let got = take_all(&source, 1).await.remove(0);
    assert_eq!(got.message.id.as_ref().unwrap().as_str(), "hex:ff");
    assert_eq!((got.message.kind.as_str(), got.count), (queue.as_str(), None));
    assert_eq!(got.message.payload, "body");
    assert_eq!(got.message.headers.get("raw;base64"), Some("/wANCg=="));
    assert_eq!(got.message.headers.get("number"), Some("-1"));
    assert_eq!(got.message.headers.get("na?me"), Some("v"));
    assert!(got.message.headers.get("x-delivery-count").is_none());
    source.settle(vec![got]).await;
}

async fn through_a_proxy(bystander: &Bystander) -> (Proxy, Rabbit) {
    let (credentials, server) = bystander.url.split_once('@').unwrap();
    let (server, vhost) = server.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap()).await.unwrap();
    let rabbit = Rabbit::new(format!("{credentials}@{}/{vhost}", proxy.addr()));
    (proxy, rabbit.connect_timeout(Duration::from_secs(2)).reconnect_pause_max(Duration::from_millis(200)))
}

/// Receives until the loss of the connection is told.
async fn lose(source: &RabbitSource) {
    eventually("the lost connection is told", async || match source.take(10, NOTHING).await {
        Ok(got) => {
            assert!(got.is_empty(), "{:?} came on a connection that is gone", texts(&got));
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), SourceErrorKind::Unavailable, "{error}");
            true
        }
    })
    .await;
}

/// Receives, through reconnects, until `count` came.
async fn take_through(
    source: &RabbitSource,
    count: usize,
) -> Vec<oncebox_core::Delivery<oncebox_rabbitmq::RabbitReceipt>> {
    let mut got = Vec::new();
    eventually("the source is back", async || {
        if let Ok(more) = source.take(count - got.len(), NOTHING).await {
            got.extend(more);
        }
        got.len() == count
    })
    .await;
    got
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_acknowledged_comes_again_after_a_lost_connection() {
    let test = "receiving::what_was_not_acknowledged_comes_again_after_a_lost_connection";
    let Some(bystander) = Bystander::find(test).await else { return };
    for kind in [QueueKind::Quorum, QueueKind::Classic] {
        let queue = name("lost");
        let (proxy, rabbit) = through_a_proxy(&bystander).await;
        let source = rabbit.source(queue.as_str()).declare(kind).single_active().prefetch(9).start().await;
        send_numbers(&bystander, &queue, 0..10).await;
        let mut got = take_all(&source, 6).await;
        let mut kept = got.split_off(2);
        let released = kept.split_off(2);
        source.settle(got).await;
        source.give_back(released, Duration::from_secs(3600)).await;
        // Acknowledgements are not confirmed, but the prefetch has room for the last one once the broker has them.
        eventually("the broker has the acknowledgements", async || bystander.ready(&queue).await == 0).await;
        proxy.cut_after(Way::ToClient, 0);
        proxy.cut_after(Way::ToServer, 0);
        send_numbers(&bystander, &queue, 10..11).await;
        lose(&source).await;
        proxy.heal();
        let again = take_through(&source, 9).await;
        assert_eq!(texts(&again), numbers(2..11), "in order, without those that were acknowledged");
        assert!(again[..8].iter().any(|delivery| delivery.count >= Some(2)), "they were there before");
        // Settled late, on the channel that is gone: no error, and nothing is taken from who has it now.
        source.settle(kept).await;
        source.end().await;
        eventually("all are back", async || bystander.ready(&queue).await == 9).await;
    }
}

/// Each loss costs all that is prefetched a delivery, and a queue has a limit of those.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_end_before_anything_is_settled_follow_each_other_slowly() {
    let test = "receiving::connections_that_end_before_anything_is_settled_follow_each_other_slowly";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("loop");
    let (proxy, rabbit) = through_a_proxy(&bystander).await;
    let rabbit = rabbit.reconnect_pause_max(Duration::from_secs(5));
    let source = rabbit.source(queue.as_str()).declare(QueueKind::Classic).start().await;
    bystander.send_texts(&queue, &["0"]).await;
    let start = tokio::time::Instant::now();
    for came in 1..=5 {
        take_through(&source, came).await;
        proxy.cut_after(Way::ToClient, 0);
        bystander.send_texts(&queue, &["more"]).await;
        lose(&source).await;
    }
    // 100, 200, 400 and 800 ms lie between them, each up to a quarter shorter.
    assert!(start.elapsed() >= Duration::from_millis(1125), "after {:?}", start.elapsed());
    let got = take_through(&source, 6).await;
    source.settle(got).await;
    proxy.cut_after(Way::ToClient, 0);
    bystander.send_texts(&queue, &["last"]).await;
    lose(&source).await;
    // Without a pause, which would be one of 1.2 s at least.
    let got = source.take(1, Duration::from_millis(1000)).await.unwrap();
    assert_eq!(texts(&got), ["last"]);
    source.settle(got).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_never_an_empty_queue() {
    let test = "receiving::a_broker_that_is_away_is_never_an_empty_queue";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("away");
    let (proxy, rabbit) = through_a_proxy(&bystander).await;
    let source = rabbit.source(queue.as_str()).declare(QueueKind::Classic).start().await;
    drop(proxy);
    lose(&source).await;
    for wait in [Duration::ZERO, Duration::from_millis(1), NOTHING] {
        for _ in 0..5 {
            let error = source.take(10, wait).await.unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Unavailable, "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_deleted_under_us_is_told() {
    let Some(bystander) = Bystander::find("receiving::a_queue_that_is_deleted_under_us_is_told").await else { return };
    let queue = name("deleted");
    let source = bystander.rabbit().source(queue.as_str()).declare(QueueKind::Classic).start().await;
    assert!(source.take(10, NOTHING).await.unwrap().is_empty());
    bystander.delete(&queue).await;
    let error = source.take(10, COMES).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains(&queue), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_gives_everything_back_in_order() {
    let Some(bystander) = Bystander::find("receiving::a_shutdown_gives_everything_back_in_order").await else { return };
    for kind in [QueueKind::Quorum, QueueKind::Classic] {
        for is_dropped in [false, true] {
            let queue = name("shutdown");
            let make = || bystander.rabbit().source(queue.as_str()).declare(kind).single_active().prefetch(6);
            // The next one waits already, as a second process does: what is given back too late would overtake.
            let (first, second) = (make().start().await, make().start().await);
            send_numbers(&bystander, &queue, 0..20).await;
            let mut got = take_all(&first, 5).await;
            let settled: Vec<_> = got.drain(..1).collect();
            first.settle(settled).await;
            first.give_back(got.split_off(2), Duration::ZERO).await;
            if is_dropped {
                drop(first);
            } else {
                first.end().await;
                assert!(first.take(1, NOTHING).await.is_err(), "it is closed");
            }
            let mut seen = Vec::new();
            while seen.len() < 19 {
                let next = take_all(&second, 1).await;
                seen.extend(texts(&next));
                second.settle(next).await;
            }
            assert_eq!(seen, numbers(1..20), "{kind:?}, dropped: {is_dropped}");
        }
    }
}
