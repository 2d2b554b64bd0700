//! Processes that have a name in their group, `group.instance.id`: one that takes the place of a dead one takes its
//! partitions, and none is left without a reader.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{ANSWER, Place, admin, close, open, receive, receive_all, text};
use oncebox_kafka::KafkaSource;
use oncebox_testkit::eventually;
use rdkafka::admin::{AdminOptions, NewPartitions};
use tokio::time::Instant;

const PARTITIONS: i32 = 4;

fn named(place: &Place, name: &str) -> KafkaSource {
    place.source().setting("group.instance.id", name)
}

/// Sends one message to each partition, and waits until the sources have received them all.
async fn all_are_read(place: &Place, partitions: i32, sources: &[&KafkaSource]) {
    for partition in 0..partitions {
        place.send(partition, [format!("late {partition}")]).await;
    }
    let mut missing: BTreeSet<String> = (0..partitions).map(|partition| format!("late {partition}")).collect();
    eventually("every partition is read", async || {
        for source in sources {
            for delivery in receive(source, 100, Duration::from_millis(50)).await {
                missing.remove(&text(&delivery));
            }
        }
        missing.is_empty()
    })
    .await;
}

/// A process dies after it was told to give partitions up, and before it has. Whoever takes its name knows nothing of that.
#[tokio::test]
async fn one_that_dies_while_partitions_move_leaves_none_behind() {
    let test = "one_that_dies_while_partitions_move_leaves_none_behind";
    let Some(place) = Place::or_skip(test, PARTITIONS).await else { return };
    for partition in 0..PARTITIONS {
        place.send(partition, ["early".to_owned()]).await;
    }
    let dies = open(named(&place, "first").drain(Duration::from_secs(600))).await;
    // What is in hand keeps it from giving anything up.
    let held = receive_all(&dies, PARTITIONS as usize).await;
    let other = open(named(&place, "second")).await;
    // The group waits for it, or was formed without waiting and counts on it to come back.
    let mut preparing = None;
    eventually("it is to give partitions up", async || {
        let (state, members) = place.group_state();
        match (state.as_str(), members) {
            ("Stable", 2) => true,
            ("PreparingRebalance", 2) => preparing.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(2),
            _ => false,
        }
    })
    .await;
    let successor = open(named(&place, "first")).await;
    all_are_read(&place, PARTITIONS, &[&successor, &other]).await;
    drop((held, dies));
    close(&successor).await;
    close(&other).await;
}

/// The process that takes a name goes on with what the other had, and does not hear that it leads the group.
#[tokio::test]
async fn partitions_that_are_added_later_are_read_too() {
    let Some(place) = Place::or_skip("partitions_that_are_added_later_are_read_too", 1).await else { return };
    let first = open(named(&place, "first")).await;
    all_are_read(&place, 1, &[&first]).await;
    close(&first).await;
    let successor = open(named(&place, "first")).await;
    all_are_read(&place, 1, &[&successor]).await;
    let more = [NewPartitions::new(&place.topic, 2)];
    let options = AdminOptions::new().operation_timeout(Some(ANSWER));
    assert!(admin(&place.servers).create_partitions(&more, &options).await.unwrap().iter().all(Result::is_ok));
    all_are_read(&place, 2, &[&successor]).await;
    close(&successor).await;
}
