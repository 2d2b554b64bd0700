//! The worker processes: started, killed, stopped, continued, started again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::process::{Event, Events, Process};
use crate::row::Faults;
use crate::worker::{Doom, Job};

/// What was done to the workers, and what they said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) deliveries: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    /// Workers that ended by themselves in the middle of their work.
    pub(crate) own_deaths: u64,
    /// Commits whose answer was lost, as counted by workers that lived to tell. Evidence that a fault hit, never part
    /// of a verdict.
    pub(crate) unknown_commits: u64,
    /// Kills by crash point; `elsewhere` for those at a random moment.
    pub(crate) killed_at: BTreeMap<String, u64>,
    /// The last thing that a worker complained of.
    pub(crate) complaint: String,
    /// How processes ended that were asked to end in order and did not.
    pub(crate) bad_ends: Vec<String>,
}

pub(crate) struct Fleet {
    job: Job,
    bug: Option<&'static str>,
    random: fastrand::Rng,
    workers: BTreeMap<u64, Worker>,
    next: u64,
    pub(crate) tally: Tally,
    /// Keys of messages that are being parked just now.
    pub(crate) parking: Vec<u64>,
    lines: mpsc::Receiver<(u64, Event)>,
    sender: Events,
    tasks: JoinSet<()>,
}

struct Worker {
    process: Process,
    doom: Doom,
    /// It has the handler of the type that is deployed later.
    deployed: bool,
    /// It builds keys in another way, and ends when that is refused.
    strange: bool,
    /// How long it lives once it works.
    life: Option<Duration>,
}

/// A worker that is to be killed works at most this long, in milliseconds, and longer where many share the machine.
const LIFE: std::ops::Range<u64> = 60..400;

/// One in this many is killed so long after its start, wherever it is by then, which on a busy machine is before it does
/// anything. The others first come to work: where all die too early, nothing is tried but starting.
pub(crate) const DIES_EARLY: u32 = 4;

/// More ends than this by themselves, and nothing works.
const OWN_DEATHS_MAX: u64 = 400;

impl Fleet {
    pub(crate) fn start(job: Job, bug: Option<&'static str>, doomed: bool) -> anyhow::Result<Self> {
        let (sender, lines) = mpsc::channel(1_000);
        let random = fastrand::Rng::with_seed(job.seed);
        let workers = job.row.workers;
        let (tally, tasks) = (Tally::default(), JoinSet::new());
        let (workers_of, parking) = (BTreeMap::new(), Vec::new());
        let mut fleet = Self { job, bug, random, workers: workers_of, next: 0, tally, parking, lines, sender, tasks };
        for _ in 0..workers {
            fleet.hire(doomed)?;
        }
        Ok(fleet)
    }

    fn hire(&mut self, doomed: bool) -> anyhow::Result<()> {
        self.hire_one(doomed, false)
    }

    fn hire_one(&mut self, doomed: bool, strange: bool) -> anyhow::Result<()> {
        let number = self.next;
        self.next += 1;
        let doom = match self.job.row.faults {
            Faults::Kill if doomed => Doom::Hang,
            // One at a time: somebody has to be there to take over what it held.
            Faults::Stop if doomed && self.workers.values().all(|worker| worker.doom == Doom::None) => Doom::Stop,
            _ => Doom::None,
        };
        let job = Job { number, seed: self.random.u64(..), doom, strange, ..self.job.clone() };
        let process = Process::start("worker", &job, self.bug, number, &self.sender, &mut self.tasks)?;
        let mut life = None;
        if doom == Doom::Hang {
            let crowd = u32::try_from(self.job.row.workers).unwrap_or(1).div_ceil(2);
            life = Some(Duration::from_millis(self.random.u64(LIFE)) * crowd);
            if self.random.u32(..DIES_EARLY) == 0
                && let Some(life) = life.take()
            {
                self.later(number, life, Event::Due);
            }
        }
        let deployed = self.job.deployed;
        self.workers.insert(number, Worker { process, doom, deployed, strange, life });
        Ok(())
    }

    fn later(&mut self, number: u64, after: Duration, event: Event) {
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(after).await;
            let _ = sender.send((number, event)).await;
        });
    }

    /// The next thing that happens to a worker.
    pub(crate) async fn event(&mut self) -> anyhow::Result<(u64, Event)> {
        while self.tasks.try_join_next().is_some() {}
        self.lines.recv().await.context("no worker is left to listen to")
    }

    /// Reacts: counts, kills, continues, hires again.
    pub(crate) fn react(&mut self, (number, event): (u64, Event), doomed: bool) -> anyhow::Result<()> {
        match event {
            Event::Works => {
                if let Some(life) = self.workers.get_mut(&number).and_then(|worker| worker.life.take()) {
                    self.later(number, life, Event::Due);
                }
            }
            Event::Received(count) => self.tally.deliveries += count,
            Event::Unknown(count) => self.tally.unknown_commits += count,
            Event::Complaint(line) => self.tally.complaint = line,
            Event::LanesLost => {}
            Event::Parks(key) => self.parking.push(key),
            Event::HangsAt(name) => self.kill(number, &name, doomed)?,
            Event::Due => self.kill(number, "elsewhere", doomed)?,
            Event::Stopped => {
                self.tally.stops += 1;
                self.later(number, self.job.row.lease() * 2, Event::Continue);
            }
            Event::Continue => {
                self.signal(number, Signal::CONT)?;
                // One stop per life: when it has gone on for a while, another one takes its place.
                self.later(number, self.job.row.lease() * 2, Event::Due);
            }
            // A killed worker is no longer listed: this one ended by itself.
            Event::Ended => {
                if let Some(worker) = self.workers.remove(&number) {
                    self.tally.own_deaths += u64::from(!worker.strange);
                    if self.tally.own_deaths > OWN_DEATHS_MAX {
                        anyhow::bail!("workers end by themselves; the last one said: {}", self.tally.complaint);
                    }
                    self.hire(doomed)?;
                }
            }
        }
        Ok(())
    }

    fn signal(&self, number: u64, signal: Signal) -> anyhow::Result<()> {
        self.workers.get(&number).map_or(Ok(()), |worker| worker.process.signal(signal))
    }

    /// SIGKILL, and a new worker in its place.
    pub(crate) fn kill(&mut self, number: u64, at: &str, doomed: bool) -> anyhow::Result<()> {
        let Some(worker) = self.workers.remove(&number) else { return Ok(()) };
        worker.process.kill(&mut self.tasks)?;
        self.tally.kills += 1;
        *self.tally.killed_at.entry(at.to_owned()).or_default() += 1;
        self.hire(doomed)
    }

    /// Whether the handler that is deployed later is.
    pub(crate) fn is_deployed(&self) -> bool {
        self.job.deployed && self.workers.values().all(|worker| worker.deployed)
    }

    /// Deploys it in one more worker.
    pub(crate) fn deploy(&mut self, doomed: bool) -> anyhow::Result<()> {
        self.job.deployed = true;
        let old = self.workers.iter().find(|(_, worker)| !worker.deployed).map(|(number, _)| *number);
        old.map_or(Ok(()), |number| self.kill(number, "deployment", doomed))
    }

    /// Replaces a worker by one that builds keys in another way. It ends when that is refused, or soon.
    pub(crate) fn hire_stranger(&mut self) -> anyhow::Result<()> {
        if self.workers.values().any(|worker| worker.strange) {
            return Ok(());
        }
        let Some(number) = self.workers.keys().next().copied() else { return Ok(()) };
        if let Some(worker) = self.workers.remove(&number) {
            worker.process.kill(&mut self.tasks)?;
        }
        self.later(self.next, self.job.row.lease() * 2, Event::Due);
        self.hire_one(false, true)
    }

    /// Kills any one worker.
    pub(crate) fn kill_any(&mut self, at: &str) -> anyhow::Result<()> {
        let numbers: Vec<u64> = self.workers.keys().copied().collect();
        match self.random.choice(numbers) {
            Some(number) => self.kill(number, at, false),
            None => Ok(()),
        }
    }

    /// Lets the workers end in order. The tally says which did not.
    pub(crate) async fn finish(mut self, patience: Duration) -> anyhow::Result<Tally> {
        let stopped: Vec<u64> = self.workers.keys().copied().collect();
        for number in stopped {
            self.signal(number, Signal::CONT)?;
        }
        for worker in self.workers.values_mut() {
            worker.process.ask_to_end();
        }
        let deadline = tokio::time::Instant::now() + patience;
        while !self.workers.is_empty() {
            let Ok(event) = tokio::time::timeout_at(deadline, self.event()).await else { break };
            match event? {
                (number, Event::Ended) => {
                    if let Some(mut worker) = self.workers.remove(&number) {
                        let bad_end = worker.process.bad_end().await?;
                        self.tally.bad_ends.extend(bad_end.map(|status| format!("worker {number}: {status}")));
                    }
                }
                // It hangs where it was told to: the last kills of the row.
                (number, Event::HangsAt(name)) => {
                    if let Some(mut worker) = self.workers.remove(&number) {
                        worker.process.child.kill().await.context("cannot kill a worker")?;
                        self.tally.kills += 1;
                        *self.tally.killed_at.entry(name).or_default() += 1;
                    }
                }
                (_, Event::Received(count)) => self.tally.deliveries += count,
                (_, Event::Unknown(count)) => self.tally.unknown_commits += count,
                (_, Event::Complaint(line)) => self.tally.complaint = line,
                (number, Event::Stopped) => self.signal(number, Signal::CONT)?,
                (_, Event::Works | Event::Due | Event::Continue | Event::LanesLost | Event::Parks(_)) => {}
            }
        }
        for (number, worker) in &mut self.workers {
            self.tally.bad_ends.push(format!("worker {number}: still there after {patience:?}"));
            worker.process.child.kill().await.context("cannot kill a worker")?;
        }
        Ok(self.tally)
    }
}
