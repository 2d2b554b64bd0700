//! Partitions come and go, by callbacks on the thread that polls.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{SourceErrorKind, planted};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::ledger::Ledger;
use super::partitions::Begin;
use super::shared::{Shared, Trouble};
use super::{Config, start};

/// How long to wait before a partition that has no leader is asked about again.
const LEADERLESS: Duration = Duration::from_millis(100);

/// What librdkafka calls back.
pub(super) struct Group {
    pub(super) config: Arc<Config>,
    pub(super) shared: Arc<Shared>,
    /// Where offsets are kept, if not in the group.
    pub(super) ledger: Option<Arc<dyn Ledger>>,
}

impl Group {
    /// Answers where these begin, if not at the group's offsets.
    fn assign(&self, consumer: &BaseConsumer<Self>, partitions: &[i32]) -> Vec<Begin> {
        let begins = match self.settle_start(consumer, partitions) {
            Ok(begins) => begins,
            Err(trouble) => {
                // Not checked is not right: with the next consumer everything is looked at again.
                self.shared.state().must_rebuild |= trouble.kind != SourceErrorKind::Configuration;
                self.shared.fail(trouble);
                return Vec::new();
            }
        };
        let mut state = self.shared.state();
        state.partitions.assign(partitions);
        state.partitions.begin(&begins);
        // The group may be elsewhere, and those who watch its lag would wonder.
        state.is_dirty |= !begins.is_empty();
        drop(state);
        tracing::debug!(topic = %self.config.topic, ?partitions, "assigned");
        begins
    }

    /// New partitions and those that just changed hands have no leader for a moment, so it is tried for a while.
    fn settle_start(&self, consumer: &BaseConsumer<Self>, partitions: &[i32]) -> Result<Vec<Begin>, Trouble> {
        let deadline = Instant::now() + self.config.answer;
        loop {
            let settled = match &self.ledger {
                None => start::settle(consumer, &self.config, partitions).map(|()| Vec::new()),
                Some(ledger) => start::settle_by_store(consumer, &self.config, &**ledger, partitions),
            };
            match settled {
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
    /// As the driver does it, but for where partitions begin: a seek after the assignment would come too late for what
    /// was fetched by then.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let numbers: Vec<i32> = list.elements().iter().map(|element| element.partition()).collect();
        let is_cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let done = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            // Empty ones are normal: the group has looked again and nothing changed for us.
            let begins = if numbers.is_empty() { Vec::new() } else { self.assign(consumer, &numbers) };
            for begin in begins.iter().filter(|_| !planted::is("offset-not-sought")) {
                // Only a partition that is not in the list is refused.
                let offset = Offset::Offset(begin.reads_from());
                let _ = list.set_partition_offset(&self.config.topic, begin.partition, offset);
            }
            if is_cooperative { consumer.incremental_assign(list) } else { consumer.assign(list) }
        } else {
            if event != RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS {
                tracing::debug!(topic = %self.config.topic, ?event, "the group was not formed");
            } else if !numbers.is_empty() {
                self.revoke(consumer, &numbers);
            }
            if is_cooperative { consumer.incremental_unassign(list) } else { consumer.unassign() }
        };
        if let Err(error) = done {
            tracing::debug!(topic = %self.config.topic, %error, "librdkafka did not take what the group assigned");
        }
    }
}
