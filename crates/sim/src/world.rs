//! One run: processes that consume, die and come back, until everything heals and drains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use oncebox::consumer::RunError;
use oncebox::memory::{MemorySource, MemoryStore};
use oncebox::{Clock, Consumer, Drained, Gap, HookRuns, KeyStrategy, OrderBy, Queue, Retry, Source, Versioned};
use oncebox_testkit::faults::{Faulty, FaultySource};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::audit;
use crate::clock::VirtualClock;
use crate::handler::{Base, Business, Upset};
use crate::history::{History, KINDS, Promise};
use crate::journal::Journal;
use crate::leftovers;
use crate::operator;
use crate::scenario::{Ending, Origin, Scenario};
use crate::shelf::Shelf;
use crate::tap::Tap;
use crate::verdict::{Kind, Verdict};
use crate::weather::{Side, Weather};

/// The consumer under test; all processes run the same one.
pub(crate) const CONSUMER: &str = "orders";

/// The queue it reads, where it reads one.
pub(crate) const QUEUE: &str = "incoming";

/// How long the backlog may take to drain after everything healed.
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// Partitions of the broker that has them.
const PARTITIONS: usize = 4;

/// How long a process that builds keys in another way runs, unless it is refused.
const STRANGE_FOR: Duration = Duration::from_millis(300);

/// Everything that the tasks of one run share.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) history: History,
    pub(crate) promise: Promise,
    /// The store as it is: nothing goes wrong on it.
    pub(crate) store: MemoryStore,
    pub(crate) memory: MemorySource,
    pub(crate) shelf: Shelf,
    weather: Arc<Weather>,
    began: Instant,
    processes: AtomicU64,
}

/// Runs a scenario in virtual time and says what it came to. `trace` keeps everything that happened.
///
/// # Panics
///
/// If no runtime can be made, or inside one.
pub fn simulate(scenario: Scenario, trace: bool) -> Verdict {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime without I/O needs nothing");
    runtime.block_on(World::run(scenario, trace))
}

impl World {
    async fn run(scenario: Scenario, trace: bool) -> Verdict {
        let world = Arc::new(Self::new(scenario, trace));
        world.journal.note(format_args!("{:?}", world.scenario));
        // One signal for each, because the waiters of one are woken in random order.
        let stops: Vec<_> = (0..world.scenario.processes).map(|_| watch::Sender::new(false)).collect();
        world.store.keep_departures().await;
        let mut processes = JoinSet::new();
        for (slot, stop) in stops.iter().enumerate() {
            processes.spawn(Arc::clone(&world).supervise(slot, stop.subscribe()));
        }
        let (attended, zombies) = (watch::Sender::new(false), watch::Sender::new(false));
        let mut others = JoinSet::new();
        if !world.scenario.is_calm() {
            others.spawn(operator::attend(Arc::clone(&world), attended.subscribe()));
        }
        if let Some((moves, pause)) = world.scenario.hazards.zombies {
            others.spawn(Arc::clone(&world).pass_on(moves, pause, zombies.subscribe()));
        }
        world.send().await;
        world.heal().await;
        for stop in [&attended, &zombies] {
            stop.send_replace(true);
        }
        others.join_all().await;
        for stop in &stops {
            stop.send_replace(true);
        }
        while let Some(ended) = processes.join_next().await {
            if let Err(error) = ended {
                world.journal.wrong(Kind::Engine, format!("a process broke down: {error}"));
            }
        }
        let left = leftovers::find(&world).await;
        audit::audit(&world, &left).await
    }

    fn new(scenario: Scenario, trace: bool) -> Self {
        let clock = Arc::new(VirtualClock::new(scenario.seed));
        let journal = Arc::new(Journal::new(Arc::clone(&clock), trace));
        let weather = Arc::new(Weather::new(scenario.clone(), Arc::clone(&clock), Arc::clone(&journal)));
        let mut dice = fastrand::Rng::with_seed(scenario.seed ^ 0x6869_7374_6f72_7921);
        let history = History::new(&scenario, &*clock, &mut dice);
        let promise = history.promise(scenario.ordered);
        let as_clock: Arc<dyn Clock> = Arc::clone(&clock) as _;
        Self {
            store: MemoryStore::with_clock(Arc::clone(&as_clock)),
            memory: MemorySource::with_clock(as_clock, scenario.lease),
            shelf: Shelf::new(PARTITIONS, Arc::clone(&clock)),
            scenario,
            clock,
            journal,
            history,
            promise,
            weather,
            began: Instant::now(),
            processes: AtomicU64::new(0),
        }
    }

    /// Sends everything at its time.
    async fn send(&self) {
        let queue = self.queue(self.store.clone());
        for sent in &self.history.sent {
            sleep_until(self.began + sent.at).await;
            self.journal.note(format_args!("sent {} variant {}", sent.order.id, sent.order.variant));
            match self.scenario.origin {
                Origin::Memory => self.memory.send(sent.message.clone()),
                Origin::Partitions => self.shelf.send(sent.message.clone()),
                // A producer whose turn does not come tries again.
                Origin::Queue => while queue.send([sent.message.clone()]).await.is_err() {},
            }
        }
    }

    /// Waits until everything is healed and has taken effect, and then until the last copies are settled.
    async fn heal(&self) {
        sleep_until(self.began + self.scenario.healed_at).await;
        let deadline = Instant::now() + DRAIN_MAX;
        while self.journal.open(&self.promise.due) > 0 {
            if Instant::now() >= deadline {
                let (open, due) = (self.journal.open(&self.promise.due), self.promise.due.len());
                self.journal.wrong(Kind::Stuck, format!("{open} of {due} took no effect in {DRAIN_MAX:?} of calm"));
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        // What is unacknowledged by now comes again when its lease runs out, and is found done.
        sleep(self.scenario.lease * 2 + self.scenario.backoff_max * 2 + Duration::from_secs(1)).await;
    }

    /// Takes partitions from those who have them, and says nothing to them.
    async fn pass_on(self: Arc<Self>, moves: usize, pause: Duration, mut stop: watch::Receiver<bool>) {
        let mut dice = fastrand::Rng::with_seed(self.scenario.seed ^ 0x7a6f_6d62_6965);
        while !self.is_healed() {
            tokio::select! {
                biased;
                () = set(&mut stop) => return,
                () = sleep(pause.mul_f64(dice.f64())) => {}
            }
            for _ in 0..moves {
                let (partition, by) = (dice.usize(0..PARTITIONS), dice.usize(0..8));
                self.journal.note(format_args!("partition {partition} changes hands"));
                self.journal.fault();
                self.shelf.lock().pass_on(partition, by);
            }
        }
    }

    /// Whether nothing goes wrong any more.
    pub(crate) fn is_healed(&self) -> bool {
        self.weather.is_healed()
    }

    /// How long it takes until then.
    pub(crate) fn until_healed(&self) -> Duration {
        self.scenario.healed_at.saturating_sub(self.clock.elapsed())
    }

    /// What an operator gives up frees what waits behind it. Where something has to wait for good, they do not.
    pub(crate) fn may_discard(&self) -> bool {
        self.scenario.conflicts == 0 && self.scenario.hazards.gap.is_none()
    }

    /// Whether a process in this slot has the handler of the later type by now.
    fn has_late_handler(&self, slot: usize) -> bool {
        self.scenario.hazards.deploys.get(slot).is_none_or(|at| self.clock.elapsed() >= *at)
    }

    /// Keeps one process running, as an init system would, through the ends that the scenario has for it.
    async fn supervise(self: Arc<Self>, slot: usize, mut stop: watch::Receiver<bool>) {
        let mut ends: Vec<_> = self.scenario.ends.iter().filter(|(of, ..)| *of == slot).collect();
        ends.sort_by_key(|(_, at, _)| *at);
        let mut ends = ends.into_iter().peekable();
        let mut strange = false;
        loop {
            let process = self.processes.fetch_add(1, Relaxed);
            let told = watch::Sender::new(false);
            let mut task = JoinSet::new();
            task.spawn(Arc::clone(&self).process(slot, process, strange, told.subscribe()));
            let end = match strange {
                true => Some((Instant::now() + STRANGE_FOR, Ending::Killed)),
                false => ends.peek().map(|(_, at, ending)| (self.began + *at, *ending)),
            };
            let at = end.map_or(self.began + Duration::from_secs(86_400), |(at, _)| at);
            tokio::select! {
                biased;
                () = set(&mut stop) => {
                    told.send_replace(true);
                    let ended = task.join_next().await;
                    if !strange && !matches!(ended, Some(Ok(Ok(Drained::Clean)))) {
                        self.journal.wrong(Kind::Engine, format!("process {process} did not drain: {ended:?}"));
                    }
                    return;
                }
                ended = task.join_next() => match std::mem::take(&mut strange) {
                    true => self.journal.note(format_args!("process {process} is refused: {ended:?}")),
                    false => self.ended(process, ended).await,
                },
                () = sleep_until(at) => {
                    if !std::mem::take(&mut strange) {
                        ends.next();
                    }
                    let ending = end.map_or(Ending::Stopped, |(_, ending)| ending);
                    self.journal.note(format_args!("process {process} is {ending:?}"));
                    match ending {
                        Ending::Killed => task.shutdown().await,
                        Ending::Replaced => {
                            task.shutdown().await;
                            // The first one that starts binds the name, and that is one of the others.
                            strange = self.journal.has_any();
                        }
                        Ending::Stopped => {
                            told.send_replace(true);
                            let ended = task.join_next().await;
                            self.journal.note(format_args!("process {process} ended: {ended:?}"));
                        }
                    }
                }
            }
        }
    }

    /// A process that ends by itself: it may, if the store was away when it started.
    async fn ended(&self, process: u64, ended: Option<Result<Result<Drained, RunError>, tokio::task::JoinError>>) {
        match ended {
            Some(Ok(Err(error @ (RunError::Store { .. } | RunError::Source { .. })))) if self.weather.lingers() => {
                self.journal.note(format_args!("process {process} does not start: {error}"));
            }
            ended => self.journal.wrong(Kind::Engine, format!("process {process} ended by itself: {ended:?}")),
        }
        sleep(Duration::from_millis(100)).await;
    }

    /// One process, from start to end.
    async fn process(
        self: Arc<Self>,
        slot: usize,
        process: u64,
        strange: bool,
        told: watch::Receiver<bool>,
    ) -> Result<Drained, RunError> {
        let which = (slot, process, strange);
        match self.scenario.origin {
            Origin::Memory => self.consume(which, self.memory.clone(), told).await,
            Origin::Partitions => self.consume(which, self.shelf.reader(process), told).await,
            Origin::Queue => {
                let store = Faulty::new(self.store.clone(), self.weather.plan(Side::Queue));
                self.consume(which, self.queue(store), told).await
            }
        }
    }

    async fn consume<Src: Source<Base>>(
        &self,
        (slot, process, strange): (usize, u64, bool),
        source: Src,
        mut told: watch::Receiver<bool>,
    ) -> Result<Drained, RunError> {
        self.journal.note(format_args!("process {process} starts"));
        let scenario = &self.scenario;
        let mut tap = Tap::new(source, process, Arc::clone(&self.journal));
        if scenario.is_calm() {
            tap = tap.once(self.undisputed());
        }
        let source = FaultySource::new(tap, self.weather.plan(Side::Source));
        let store = Faulty::new(self.store.clone(), self.weather.plan(Side::Store));
        let business = Business {
            process,
            journal: Arc::clone(&self.journal),
            weather: Arc::clone(&self.weather),
            fenced: scenario.origin == Origin::Queue && !scenario.stored,
        };
        let (journal, repeats) = (Arc::clone(&self.journal), scenario.hook_on_duplicates);
        let runs = if repeats { HookRuns::AlsoOnDuplicates } else { HookRuns::Once };
        let [weather, reads, alerted] = [(); 3].map(|()| Arc::clone(&self.weather));
        let consumer = Consumer::new(CONSUMER, store, source)
            .classify(move |upset: &Upset| {
                reads.may_well_panic("the reading of an error");
                upset.class
            })
            .on_dead(move |_| {
                alerted.may_panic("the call of an alert");
                let alerted = Arc::clone(&alerted);
                async move { alerted.may_panic("an alert") }
            })
            .clock(Arc::clone(&self.clock) as _)
            // However long the weather is bad: what is to be seen here is that everything is handled in the end.
            .retry(Retry::new().attempts(u32::MAX).first(Duration::from_millis(20)).max(scenario.backoff_max))
            .order_by(if scenario.ordered { OrderBy::MessageKey } else { OrderBy::Nothing })
            .after_commit(runs, move |message, _| {
                journal.settled(&message.label().to_string(), repeats);
                weather.may_panic("the call of a hook");
                let weather = Arc::clone(&weather);
                async move { weather.may_panic("a hook of the consumer") }
            })
            .bounds(|bounds| {
                bounds.lanes = scenario.lanes;
                bounds.batch_messages_max = scenario.batch_max;
                bounds.in_flight_max = scenario.in_flight_max;
                // Some slow handlers are ended, unless nothing may go wrong.
                bounds.handler_deadline = if scenario.is_calm() { DRAIN_MAX } else { scenario.lease };
            });
        let consumer = match strange {
            true => consumer.key(KeyStrategy::template("another:{id}").expect("the template is one")),
            false => consumer,
        };
        let mut consumer = match scenario.hazards.gap {
            Some(time) => consumer.versioned(Versioned::by_order_key().on_gap(Gap::Wait { time, messages: 1_000 })),
            None => consumer,
        };
        for kind in &KINDS[..if self.has_late_handler(slot) { 2 } else { 1 }] {
            let business = business.clone();
            consumer = match scenario.batch_handler {
                true => consumer.on_batch(*kind, move |ctx, orders| business.clone().many(ctx, orders)),
                false => consumer.on(*kind, move |ctx, order| business.clone().one(ctx, order)),
            };
        }
        let shutdown = async move { set(&mut told).await };
        match scenario.stored {
            true => consumer.stored().lease(scenario.lease).run(shutdown).await,
            false => consumer.run(shutdown).await,
        }
    }

    fn queue<S: oncebox::queue::QueueStore>(&self, store: S) -> Queue<S> {
        let queue = if self.scenario.ordered { Queue::ordered(store, QUEUE) } else { Queue::new(store, QUEUE) };
        queue.expect("the name of the queue is one").lease(self.scenario.lease)
    }

    /// Ids under which only one message was sent, and that wait behind no other.
    fn undisputed(&self) -> Arc<std::collections::HashSet<String>> {
        let sent = &self.history.sent;
        let disputed: Vec<_> = sent.iter().filter(|sent| sent.order.variant > 0).collect();
        // A conflict is released and comes again, and the source holds its order key back meanwhile.
        let free = sent
            .iter()
            .filter(|sent| !disputed.iter().any(|other| other.order.id == sent.order.id || other.key() == sent.key()));
        Arc::new(free.map(|sent| sent.order.id.clone()).collect())
    }

    /// Whether everyone who could still be running has had the time to end.
    pub(crate) async fn idle(&self) -> usize {
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let idle = async {
            while alive() > 0 {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = timeout(Duration::from_secs(60), idle).await;
        alive()
    }
}

/// Returns once the signal is set.
pub(crate) async fn set(signal: &mut watch::Receiver<bool>) {
    let _ = signal.wait_for(|set| *set).await;
}
