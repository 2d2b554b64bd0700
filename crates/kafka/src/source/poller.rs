//! The thread that owns the consumer: polls it, commits, pauses what is full, and makes another when it is of no use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{SourceError, SourceErrorKind};
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{ClientConfig, Offset};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lag::Lag;
use super::ledger::Ledger;
use super::partitions::{AnotherLog, Room};
use super::rebalance::Group;
use super::shared::{Shared, State, Trouble};
use super::{Config, OURS, start};
use crate::{error, record};

/// The longest that a poll takes when nothing comes: so long may a commit or a stop wait.
const TICK: Duration = Duration::from_millis(50);

/// How long a full partition is waited for before it is paused. Pausing throws away what librdkafka has fetched ahead.
const PATIENCE: Duration = Duration::from_millis(100);

/// Between two tries of something that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What a client that finds no broker may have said, and how long it may take to say something. Without a wait, a line of its
/// log would end the look.
const SAID_MAX: usize = 100;
const SAID_WAIT: Duration = Duration::from_millis(100);

/// At most this often: what was done in it comes again after a crash, and is found to be a duplicate.
const COMMIT_EVERY: Duration = Duration::from_millis(100);

/// When offsets are committed once more, in case the last commit was lost.
const COMMIT_AGAIN: Duration = Duration::from_secs(5);

/// Who gets which partition.
///
/// Cooperative groups take a partition from one member in a first round and give it to another in a second, for which the
/// first asks when it has let go. If it dies before, and another takes its name (`group.instance.id`), that one is handed
/// what the first was to keep, has nothing to let go of, and asks for no second round: nobody reads the partition, and
/// nobody says so. So named processes share partitions in one round, and rest while they do; they rarely have to.
const STRATEGY: &str = "partition.assignment.strategy";

/// Starts the thread, and waits until it has reached the brokers and seen the topic, or failed to.
pub(super) async fn start(
    config: Arc<Config>,
    shared: Arc<Shared>,
    ledger: Option<Arc<dyn Ledger>>,
) -> Result<(), SourceError> {
    if !shared.begin() {
        return Err(config.error(SourceErrorKind::Configuration, "open", "it is open already; open it once"));
    }
    let (tell, told) = oneshot::channel();
    let failed = config.error(SourceErrorKind::Unavailable, "open", "its thread ended at once; open it again");
    let unstarted = config.error(SourceErrorKind::Unavailable, "open", "the system gives no thread to read it with");
    let thread = std::thread::Builder::new().name("oncebox-kafka".to_owned());
    let ends = EndOnDrop(Arc::clone(&shared));
    let body = move || {
        let _ends = ends;
        run(&config, &shared, ledger.as_ref(), tell);
    };
    thread.spawn(body).map_err(|_| unstarted)?;
    told.await.unwrap_or(Err(failed))
}

fn run(
    config: &Arc<Config>,
    shared: &Arc<Shared>,
    ledger: Option<&Arc<dyn Ledger>>,
    tell: oneshot::Sender<Result<(), SourceError>>,
) {
    let mut consumer = match connect(config, shared, ledger) {
        Ok(consumer) => Some(consumer),
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    loop {
        if let Some(consumer) = consumer.take() {
            Poller { consumer: &consumer, config, shared, paused: BTreeSet::new(), looked: None, lag: Lag::default() }
                .run();
            // Leaves the group, with the revoke callback.
            drop(consumer);
        }
        shared.wait_while(PAUSE, |state| !is_final(state));
        {
            let mut state = shared.state();
            if state.is_stopping || is_final(&state) {
                return;
            }
            state.must_rebuild = false;
        }
        match connect(config, shared, ledger) {
            Ok(connected) => consumer = Some(connected),
            Err(error) => shared.fail(Trouble::from(&error)),
        }
    }
}

/// Whatever ends the thread, nobody waits for it any more.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A consumer that has seen its topic and subscribed to it.
fn connect(
    config: &Arc<Config>,
    shared: &Arc<Shared>,
    ledger: Option<&Arc<dyn Ledger>>,
) -> Result<BaseConsumer<Group>, SourceError> {
    let failed = |error: &KafkaError| config.error(error::source_kind(error), "open", error::reason(error));
    let group = Group { config: Arc::clone(config), shared: Arc::clone(shared), ledger: ledger.cloned() };
    let consumer: BaseConsumer<Group> = client(config)?.create_with_context(group).map_err(|error| failed(&error))?;
    // That it is not let in, the client says beside; the question itself just finds no answer.
    let looked = has_topic(&consumer, config, config.answer).map_err(|error| permanent(&consumer).unwrap_or(error));
    if !looked.map_err(|error| failed(&error))? {
        let reason = format!("there is no topic {}; create it, or correct its name", config.topic);
        return Err(config.error(SourceErrorKind::Configuration, "open", reason));
    }
    consumer.subscribe(&[&config.topic]).map_err(|error| failed(&error))?;
    Ok(consumer)
}

/// What the client has to say that will not get better by itself.
fn permanent(consumer: &BaseConsumer<Group>) -> Option<KafkaError> {
    let said = std::iter::from_fn(|| consumer.poll(SAID_WAIT)).take(SAID_MAX);
    said.filter_map(Result::err).find(|error| error::source_kind(error) == SourceErrorKind::Configuration)
}

fn client(config: &Config) -> Result<ClientConfig, SourceError> {
    let mut ours = OURS.to_vec();
    ours.push(("group.id", &config.group));
    let mut defaults = vec![("client.id", "oncebox"), ("queued.max.messages.kbytes", "16384")];
    let is_named = config.settings.has("group.instance.id");
    // The new group protocol has the broker assign.
    if !config.settings.has("group.protocol") {
        defaults.push((STRATEGY, if is_named { "range" } else { "cooperative-sticky" }));
    }
    if is_named && config.settings.get(STRATEGY).is_some_and(|strategy| strategy.contains("cooperative")) {
        let reason = format!(
            "{STRATEGY} is cooperative and group.instance.id is set: when a process dies while partitions move, those are \
             nobody's until the group changes again; leave out one of the two settings"
        );
        return Err(config.error(SourceErrorKind::Configuration, "open", reason));
    }
    let refused = |reason| config.error(SourceErrorKind::Configuration, "open", reason);
    config.settings.client(&defaults, &ours).map_err(refused)
}

fn has_topic(consumer: &BaseConsumer<Group>, config: &Config, wait: Duration) -> Result<bool, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(&config.topic), wait)?;
    match metadata.topics().iter().find(|topic| topic.name() == config.topic).map(|topic| topic.error()) {
        Some(None) => Ok(true),
        Some(Some(error)) => match Code::from(error) {
            Code::UnknownTopicOrPartition | Code::UnknownTopic => Ok(false),
            code => Err(KafkaError::MetadataFetch(code)),
        },
        None => Ok(false),
    }
}

struct Poller<'c> {
    consumer: &'c BaseConsumer<Group>,
    config: &'c Config,
    shared: &'c Shared,
    paused: BTreeSet<i32>,
    /// When the brokers were last looked for while they were away.
    looked: Option<Instant>,
    lag: Lag,
}

impl Poller<'_> {
    fn run(mut self) {
        loop {
            {
                let state = self.shared.state();
                if state.is_stopping || state.must_rebuild || is_final(&state) {
                    return;
                }
            }
            self.commit();
            self.resume();
            match self.consumer.poll(TICK) {
                Some(Ok(record)) => {
                    let message = Arc::new(record::read(&record));
                    let partition = record.partition();
                    let mut state = self.shared.state();
                    let witness = record::witness(&record);
                    let inserted = state.partitions.insert(
                        partition,
                        record.offset(),
                        message,
                        witness,
                        record::stored_at(&record),
                    );
                    drop(state);
                    if inserted == Err(AnotherLog) {
                        self.shared.fail(start::another_log(self.config, partition, record.offset()));
                        continue;
                    }
                    self.shared.recover();
                    self.shared.tell_receivers();
                    self.make_room(partition);
                }
                Some(Err(error)) => self.heed(&error),
                None => {}
            }
            self.look_for_brokers();
            self.lag.look(self.consumer, self.config, self.shared);
        }
    }

    /// Commits what is done by now, and once more when things are quiet, in case that was lost.
    fn commit(&self) {
        {
            let mut state = self.shared.state();
            let is_past = |wait| state.committed_at.is_none_or(|then| then.elapsed() >= wait);
            if state.is_dirty && is_past(COMMIT_EVERY) {
                state.is_unsure = true;
            } else if !state.is_dirty && state.is_unsure && is_past(COMMIT_AGAIN) {
                state.is_unsure = false;
                state.partitions.tell_again();
            } else {
                return;
            }
        }
        self.consumer.context().commit(self.consumer);
    }

    /// Pauses a partition that stays full. The consumer is polled all the same.
    fn make_room(&mut self, partition: i32) {
        let room = self.config.room;
        if !self.shared.state().partitions.is_full(partition, room) {
            return;
        }
        if self.shared.wait_while(PATIENCE, |state| state.partitions.is_full(partition, room)) {
            match self.consumer.pause(&start::list(self.config, [(partition, Offset::Invalid)])) {
                Ok(()) => drop(self.paused.insert(partition)),
                Err(error) => tracing::debug!(partition, %error, "not paused"),
            }
        }
    }

    /// Goes on with partitions that are half empty again.
    fn resume(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let Room { messages, bytes } = self.config.room;
        let half = Room { messages: messages.div_ceil(2), bytes: bytes.div_ceil(2) };
        let partitions: Vec<i32> = {
            let state = self.shared.state();
            let assigned = state.partitions.numbers();
            // One that went away is no longer paused when it comes back.
            self.paused.retain(|partition| assigned.contains(partition));
            self.paused.iter().copied().filter(|partition| !state.partitions.is_full(*partition, half)).collect()
        };
        for partition in partitions {
            if self.consumer.resume(&start::list(self.config, [(partition, Offset::Invalid)])).is_ok() {
                self.paused.remove(&partition);
            }
        }
    }

    fn heed(&mut self, error: &KafkaError) {
        let trouble = |kind| Trouble { kind, reason: error::read_reason(error) };
        match error.rdkafka_error_code() {
            Some(Code::AutoOffsetReset) => self.shared.fail(start::out_of_range(self.config)),
            Some(Code::AllBrokersDown) => {
                let reason = format!("no broker of {} answers; waiting for them", self.config.settings.servers());
                self.shared.fail(Trouble::unavailable(reason));
            }
            // Also said while brokers tell each other of a topic: ask.
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => {
                if matches!(has_topic(self.consumer, self.config, PAUSE), Ok(false)) {
                    let reason =
                        format!("there is no topic {} any more; create it, or stop reading it", self.config.topic);
                    self.shared.fail(Trouble::configuration(reason));
                }
            }
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                self.shared.fail(trouble(error::source_kind(error)));
                self.shared.state().must_rebuild = true;
            }
            // Also what the client would try again for ever, or skip.
            _ if error::source_kind(error) == SourceErrorKind::Configuration => {
                self.shared.fail(trouble(SourceErrorKind::Configuration));
            }
            // One broker of several, a rebalance that is repeated, a poll that came late: librdkafka goes on by itself.
            _ => tracing::debug!(topic = %self.config.topic, %error, "librdkafka goes on by itself"),
        }
    }

    /// Nothing says that brokers are back when nothing is to be read, so they are asked.
    fn look_for_brokers(&mut self) {
        let is_away = self.shared.state().trouble.is_some();
        if !is_away || self.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
            return;
        }
        if matches!(has_topic(self.consumer, self.config, PAUSE), Ok(true)) {
            self.shared.recover();
        }
        self.looked = Some(Instant::now());
    }
}

fn is_final(state: &State) -> bool {
    state.trouble.as_ref().is_some_and(|trouble| trouble.kind == SourceErrorKind::Configuration)
}
