//! Kafka for Oncebox: [`KafkaSource`] reads a topic in a consumer group, [`KafkaSink`] publishes with an idempotent
//! producer.
//!
//! ```no_run
//! use oncebox_kafka::{KafkaSource, Start};
//!
//! let source = KafkaSource::new("kafka-1:9092,kafka-2:9092", "invoices", "payments").start_from(Start::Beginning);
//! ```
//!
//! # What it promises
//!
//! | | |
//! | --- | --- |
//! | never skipped | the offset committed for a partition is that of its first message that is not done, whatever was done after it |
//! | order | per partition; a released message holds up those behind it in its partition |
//! | identity | CloudEvents `ce_id` and `ce_source`, else the header `oncebox-id`; the place is `topic/partition/offset` |
//! | order key | CloudEvents `ce_partitionkey`, else the record's key (in hexadecimal after `hex:` where it is no UTF-8) |
//! | type | CloudEvents `ce_type`, else the topic |
//!
//! # Offsets in the store
//!
//! By default offsets live in the group and the inbox has a record per message. With
//! [`KafkaSource::offsets_in_store`] the store has one number per partition instead, which commits with the effects:
//! cheaper, and blind to what a producer sends twice. See [`OffsetsInStore`] for what goes with it.
//!
//! # What it does not do
//!
//! Kafka counts no deliveries, so a message that kills the process comes again uncounted. A topic that was deleted and made
//! again begins at offset 0, so its places are not new ones. A partition that is taken from a process which does not know
//! it yet is handled in two places for a while; the inbox makes each message take effect once all the same, the order
//! across the two is not kept.
//!
//! # Building
//!
//! librdkafka is compiled in: that takes a C and C++ compiler, `make` and `bash`. The feature `tls` adds TLS and SASL by
//! the system's OpenSSL.

mod error;
mod inspect;
mod record;
mod settings;
pub mod sink;
pub mod source;

pub use inspect::{Target, TopicFacts, inspect, look_for};
pub use sink::KafkaSink;

pub use source::{KafkaReceipt, KafkaSource, OffsetsInStore, Start};
