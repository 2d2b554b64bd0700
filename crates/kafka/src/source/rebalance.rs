//! Partitions come and go, by callbacks on the thread that polls.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::SourceErrorKind;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::shared::{Shared, Trouble};
use super::{Config, start};

/// How long to wait before a partition that has no leader is asked about again.
const LEADERLESS: Duration = Duration::from_millis(100);

/// What librdkafka calls back.
pub(super) struct Group {
    pub(super) config: Arc<Config>,
    pub(super) shared: Arc<Shared>,
}

impl Group {
    fn assign(&self, consumer: &BaseConsumer<Self>, partitions: &[i32]) {
        if let Err(trouble) = self.settle_start(consumer, partitions) {
            // Not checked is not right: with the next consumer everything is looked at again.
            self.shared.state().must_rebuild |= trouble.kind != SourceErrorKind::Configuration;
            self.shared.fail(trouble);
            return;
        }
        self.shared.state().partitions.assign(partitions);
        tracing::debug!(topic = %self.config.topic, ?partitions, "assigned");
    }

    /// New partitions and those that just changed hands have no leader for a moment, so it is tried for a while.
    fn settle_start(&self, consumer: &BaseConsumer<Self>, partitions: &[i32]) -> Result<(), Trouble> {
        let deadline = Instant::now() + self.config.answer;
        loop {
            match start::settle(consumer, &self.config, partitions) {
                Err(trouble) if trouble.kind == SourceErrorKind::Unavailable && Instant::now() < deadline => {
                    if !self.shared.wait_while(LEADERLESS, |_| true) {
                        // It should stop.
                        return Err(trouble);
                    }
                }
                settled => return settled,
            }
        }
    }

    /// Nothing more of these is handed out; what is out may still be finished, for a while; then what is done is
    /// committed, before anyone else begins there.
    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &[i32]) {
        let is_lost = consumer.assignment_lost();
        self.shared.state().partitions.leave(partitions);
        if !is_lost {
            let late = self.shared.wait_while(self.config.drain, |state| state.partitions.out(partitions) > 0);
            if late {
                tracing::info!(topic = %self.config.topic, ?partitions, "given up with messages in hand: they come again");
            }
            self.shared.state().partitions.tell_again();
            // Not waited for here, which would take as long as the brokers are away: librdkafka itself goes on with the
            // group only when its commits are answered.
            self.commit(consumer);
        }
        // From here on, whoever settles one of them settles nothing.
        self.shared.state().partitions.revoke(partitions);
        tracing::debug!(topic = %self.config.topic, ?partitions, is_lost, "revoked");
    }

    /// Tells the broker the marks that moved. Only the present assignment has marks, and librdkafka refuses to store an
    /// offset for another: the broker itself would let us overwrite the new owner's.
    ///
    /// Whether it got through is not told (the driver has a callback and never calls it), so the marks are told again
    /// later.
    pub(super) fn commit(&self, consumer: &BaseConsumer<Self>) {
        let marks = {
            let mut state = self.shared.state();
            state.is_dirty = false;
            state.committed_at = Some(Instant::now());
            state.partitions.tell_marks()
        };
        if marks.is_empty() {
            return;
        }
        // An offset in this list is that of the next record to read.
        let list =
            start::list(&self.config, marks.into_iter().map(|(partition, mark)| (partition, Offset::Offset(mark))));
        if let Err(error) = consumer.store_offsets(&list).and_then(|()| consumer.commit(&list, CommitMode::Async)) {
            tracing::debug!(topic = %self.config.topic, %error, "offsets were not committed: they are later, or come again");
            self.shared.state().is_unsure = true;
        }
    }
}

impl ClientContext for Group {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Group {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let numbers = |list: &TopicPartitionList| -> Vec<i32> {
            list.elements().iter().map(|element| element.partition()).collect()
        };
        match rebalance {
            // Empty ones are normal: the group has looked again and nothing changed for us.
            Rebalance::Assign(list) if list.count() > 0 => self.assign(consumer, &numbers(list)),
            Rebalance::Revoke(list) if list.count() > 0 => self.revoke(consumer, &numbers(list)),
            Rebalance::Error(error) => tracing::debug!(topic = %self.config.topic, %error, "the group was not formed"),
            _ => {}
        }
    }
}
