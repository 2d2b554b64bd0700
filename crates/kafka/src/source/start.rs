//! Where reading a partition begins: at the group's offset, if the broker still has what follows it.

use oncebox_core::planted;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::ledger::Ledger;
use super::partitions::Begin;
use super::rebalance::Group;
use super::shared::Trouble;
use super::{Config, Start};
use crate::error;

/// Checks the group's offsets of these partitions before they are read, and commits where it begins in those that have
/// none, if that was chosen.
pub(super) fn settle(consumer: &BaseConsumer<Group>, config: &Config, partitions: &[i32]) -> Result<(), Trouble> {
    let asked = list(config, partitions.iter().map(|partition| (*partition, Offset::Invalid)));
    let committed = consumer.committed_offsets(asked, config.answer).map_err(|error| trouble(&error))?;
    let mut without = Vec::new();
    for element in committed.elements() {
        match element.offset() {
            Offset::Offset(offset) => check(consumer, config, element.partition(), offset)?,
            _ => without.push(element.partition()),
        }
    }
    if without.is_empty() {
        return Ok(());
    }
    let Some(start) = config.start else { return Err(no_offset(config, &without)) };
    let mut begin = Vec::new();
    for partition in without {
        let (low, high) = watermarks(consumer, config, partition)?;
        begin.push((partition, Offset::Offset(if start == Start::Beginning { low } else { high })));
    }
    tracing::info!(topic = %config.topic, group = %config.group, ?begin, "the group begins here, as chosen");
    consumer.commit(&list(config, begin), CommitMode::Sync).map_err(|error| trouble(&error))
}

/// What `auto.offset.reset=error` says when the group falls out of what the broker keeps while it reads.
pub(super) fn out_of_range(config: &Config) -> Trouble {
    Trouble::configuration(format!(
        "the offset of group {} in topic {} is not, or no longer, in what the broker keeps, so records may be gone unread; \
         look at both, and set the group's offsets with Kafka's tools",
        config.group, config.topic
    ))
}

fn no_offset(config: &Config, partitions: &[i32]) -> Trouble {
    let Config { group, topic, .. } = config;
    Trouble::configuration(format!(
        "group {group} has no offset in topic {topic}, partitions {partitions:?}: it reads them for the first time, or its \
         offsets have expired; say where to begin: with `start` in a file, with start_from in Rust"
    ))
}

/// The broker must still have what follows the offset.
fn check(consumer: &BaseConsumer<Group>, config: &Config, partition: i32, offset: i64) -> Result<(), Trouble> {
    let (low, high) = watermarks(consumer, config, partition)?;
    let Config { group, topic, .. } = config;
    if offset < low {
        return Err(Trouble::configuration(format!(
            "group {group} is at offset {offset} of topic {topic}, partition {partition}, and the broker's oldest is {low}: \
             records were deleted unread; set the group's offset with Kafka's tools to go on"
        )));
    }
    if offset > high {
        return Err(Trouble::configuration(format!(
            "group {group} is at offset {offset} of topic {topic}, partition {partition}, which ends at {high}: the topic \
             was made anew or lost records; set the group's offset with Kafka's tools to go on"
        )));
    }
    Ok(())
}

fn watermarks(consumer: &BaseConsumer<Group>, config: &Config, partition: i32) -> Result<(i64, i64), Trouble> {
    consumer.fetch_watermarks(&config.topic, partition, config.answer).map_err(|error| trouble(&error))
}

fn trouble(error: &KafkaError) -> Trouble {
    Trouble { kind: error::source_kind(error), reason: error::reason(error) }
}

/// Partitions of our topic with offsets.
pub(super) fn list(config: &Config, offsets: impl IntoIterator<Item = (i32, Offset)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        // Only an offset that has no number is refused, and then the partition is in the list without one.
        let _ = list.add_partition_offset(&config.topic, partition, offset);
    }
    list
}

/// Takes partitions over in the store, and checks the offsets there before they are read. Those that have come nowhere yet
/// begin as chosen, and that is written down before anything is read: the choice is made once.
pub(super) fn settle_by_store(
    consumer: &BaseConsumer<Group>,
    config: &Config,
    ledger: &dyn Ledger,
    partitions: &[i32],
) -> Result<Vec<Begin>, Trouble> {
    let taken = ledger.take(partitions)?;
    let mut begins = Vec::with_capacity(partitions.len());
    let mut new = Vec::new();
    for (partition, taken) in partitions.iter().copied().zip(taken) {
        let (low, high) = watermarks(consumer, config, partition)?;
        let next = match taken.next {
            Some(next) => {
                if let Some(trouble) = out_of_log(config, partition, next, (low, high)) {
                    return Err(trouble);
                }
                next
            }
            None => {
                let next = first(consumer, config, partition, (low, high))?;
                new.push((partition, taken.epoch, next));
                next
            }
        };
        // What is gone by retention cannot be looked at.
        let witness = taken.witness.filter(|_| next > low);
        begins.push(Begin { partition, next, held: taken.epoch, witness });
    }
    if !new.is_empty() {
        tracing::info!(topic = %config.topic, group = %config.group, begin = ?new, "the consumer begins here, as chosen");
        ledger.begin(&new)?;
    }
    Ok(begins)
}

/// Where a partition begins for which the store has no offset.
fn first(
    consumer: &BaseConsumer<Group>,
    config: &Config,
    partition: i32,
    (low, high): (i64, i64),
) -> Result<i64, Trouble> {
    let Config { group, topic, .. } = config;
    if config.adopts_group {
        let asked = list(config, [(partition, Offset::Invalid)]);
        let committed = consumer.committed_offsets(asked, config.answer).map_err(|error| trouble(&error))?;
        if let Some(Offset::Offset(offset)) = committed.elements().first().map(|element| element.offset()) {
            check(consumer, config, partition, offset)?;
            return Ok(offset);
        }
    }
    match config.start {
        Some(Start::Beginning) => Ok(low),
        Some(Start::End) => Ok(high),
        None => Err(Trouble::configuration(format!(
            "the store has no offset for topic {topic}, partition {partition}: it is read for the first time; say where to \
             begin with start_from, or go on where group {group} is with adopt_group_offsets"
        ))),
    }
}

/// Whether the broker does not, or no longer, have what follows an offset of the store.
fn out_of_log(config: &Config, partition: i32, next: i64, (low, high): (i64, i64)) -> Option<Trouble> {
    let topic = &config.topic;
    if next < low && !planted::is("offset-below-log-skipped") {
        return Some(Trouble::configuration(format!(
            "the store's offset of topic {topic}, partition {partition}, is {next}, and the broker's oldest is {low}: records \
             were deleted unread; {SET_OFFSET}"
        )));
    }
    (next > high && !planted::is("offset-of-another-log")).then(|| {
        Trouble::configuration(format!(
            "the store's offset of topic {topic}, partition {partition}, is {next}, and the partition ends at {high}: the \
             topic was made anew or lost records; {SET_OFFSET}"
        ))
    })
}

/// What a person can do about it.
const SET_OFFSET: &str = "find out what is missing, then set `next` (and `witness` to null) of this log in the table of \
                          offsets while the consumer is stopped";

/// The record before the store's offset is not the one that was handled.
pub(super) fn another_log(config: &Config, partition: i32, offset: i64) -> Trouble {
    let topic = &config.topic;
    Trouble::configuration(format!(
        "the record at offset {offset} of topic {topic}, partition {partition}, is not the one that was handled: the topic was \
         made anew, or lost records; {SET_OFFSET}"
    ))
}
