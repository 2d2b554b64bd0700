//! The processes of a row: started, killed, stopped, continued, and each followed by another in its place.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use oncebox::crashpoint;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::hand::{Doom, HandJob, Role};
use super::row::Trouble;
use crate::fleet::{DIES_EARLY, Tally};
use crate::process::{Event, Events, Process};

pub(super) struct Crew {
    job: HandJob,
    bug: Option<&'static str>,
    random: fastrand::Rng,
    hands: BTreeMap<u64, Hand>,
    /// Places to fill again, and when.
    vacant: Vec<(Instant, Role, usize)>,
    next: u64,
    /// Whose turn it is among the relay's crash points: each has to come.
    point: usize,
    doomed: bool,
    pub(super) tally: Tally,
    lines: mpsc::Receiver<(u64, Event)>,
    sender: Events,
    tasks: JoinSet<()>,
}

struct Hand {
    process: Process,
    role: Role,
    slot: usize,
    /// How long it lives once it works.
    life: Option<Duration>,
}

/// What the row has to know of.
pub(super) enum Note {
    /// A relay stopped itself.
    Stopped(u64),
    /// A relay found that its lanes have a new owner.
    LanesLost(u64),
}

/// How long processes work that are to be killed, in milliseconds. Where one consumer of JetStream dies with a message in
/// hand, the others wait for a second.
const RELAY_LIFE: std::ops::Range<u64> = 300..1_500;
const CONSUMER_LIFE: std::ops::Range<u64> = 1_000..4_000;

/// Dies at one of the first this many passes of a crash point.
const RELAY_PASSES: u32 = 4;
const CONSUMER_PASSES: u32 = 30;

/// One that ended by itself, as processes do that find no broker at their start, is followed by another after this long.
const REHIRE: Duration = Duration::from_secs(1);

/// More ends than this by themselves, and nothing works.
const OWN_DEATHS_MAX: u64 = 2_000;

impl Crew {
    pub(super) fn start(job: HandJob, bug: Option<&'static str>, seed: u64) -> anyhow::Result<Self> {
        let (sender, lines) = mpsc::channel(1_000);
        let (consumers, relays) = (job.row.consumers, job.row.relays);
        let mut crew = Self {
            job,
            bug,
            random: fastrand::Rng::with_seed(seed),
            hands: BTreeMap::new(),
            vacant: Vec::new(),
            next: 0,
            point: 0,
            doomed: true,
            tally: Tally::default(),
            lines,
            sender,
            tasks: JoinSet::new(),
        };
        for (role, count) in [(Role::First, consumers), (Role::Second, consumers), (Role::Relay, relays)] {
            for slot in 0..count {
                crew.hire(role, slot)?;
            }
        }
        Ok(crew)
    }

    /// From now on nobody is hired to die.
    pub(super) fn spare(&mut self) {
        self.doomed = false;
    }

    fn hire(&mut self, role: Role, slot: usize) -> anyhow::Result<()> {
        let number = self.next;
        self.next += 1;
        let doom = self.doom(role, slot);
        let dies = doom.as_ref().is_some_and(|doom| !doom.stops);
        let job = HandJob { role, number, slot, doom, ..self.job.clone() };
        let process = Process::start("hand", &job, self.bug, number, &self.sender, &mut self.tasks)?;
        let mut life = None;
        if dies {
            let range = if role == Role::Relay { RELAY_LIFE } else { CONSUMER_LIFE };
            life = Some(Duration::from_millis(self.random.u64(range)));
            if self.random.u32(..DIES_EARLY) == 0
                && let Some(life) = life.take()
            {
                self.dies_after(number, life);
            }
        }
        self.hands.insert(number, Hand { process, role, slot, life });
        Ok(())
    }

    fn dies_after(&mut self, number: u64, life: Duration) {
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(life).await;
            let _ = sender.send((number, Event::Due)).await;
        });
    }

    fn doom(&mut self, role: Role, slot: usize) -> Option<Doom> {
        let relay = role == Role::Relay;
        match self.job.row.trouble {
            _ if !self.doomed => None,
            Trouble::Kill => {
                let (points, passes) =
                    if relay { (crashpoint::RELAY, RELAY_PASSES) } else { (crashpoint::ALL, CONSUMER_PASSES) };
                self.point += usize::from(relay);
                let at = if relay { self.point % points.len() } else { self.random.usize(..points.len()) };
                Some(Doom { point: points[at].to_owned(), pass: self.random.u32(1..=passes), stops: false })
            }
            // One at a time: somebody has to be there to take over.
            Trouble::Stop if slot == 0 => {
                let points = ["relay-published", "relay-confirmed"];
                self.point += 1;
                let point = points[self.point % points.len()].to_owned();
                Some(Doom { point, pass: self.random.u32(1..=RELAY_PASSES), stops: true })
            }
            Trouble::None | Trouble::Stop | Trouble::EachSecond => None,
        }
    }

    /// The next thing that happens to a process.
    pub(super) async fn event(&mut self) -> anyhow::Result<(u64, Event)> {
        while self.tasks.try_join_next().is_some() {}
        self.lines.recv().await.context("no process is left to listen to")
    }

    /// Reacts: counts, kills, hires again.
    pub(super) fn react(&mut self, (number, event): (u64, Event)) -> anyhow::Result<Option<Note>> {
        match event {
            Event::Works => {
                if let Some(life) = self.hands.get_mut(&number).and_then(|hand| hand.life.take()) {
                    self.dies_after(number, life);
                }
            }
            Event::Received(count) => self.tally.deliveries += count,
            Event::Complaint(line) => self.tally.complaint = line,
            Event::HangsAt(name) => self.kill(number, &name)?,
            // Its time has come for nothing where nobody is to die any more.
            Event::Due if self.doomed => self.kill(number, "elsewhere")?,
            Event::Stopped => return Ok(Some(Note::Stopped(number))),
            Event::LanesLost => return Ok(Some(Note::LanesLost(number))),
            // A killed one is no longer listed: this one ended by itself.
            Event::Ended => {
                if let Some(hand) = self.hands.remove(&number) {
                    self.tally.own_deaths += 1;
                    anyhow::ensure!(
                        self.tally.own_deaths <= OWN_DEATHS_MAX,
                        "processes end by themselves; the last one said: {}",
                        self.tally.complaint
                    );
                    self.vacant.push((Instant::now() + REHIRE, hand.role, hand.slot));
                }
            }
            Event::Due | Event::Continue | Event::Unknown(_) | Event::Parks(_) => {}
        }
        Ok(None)
    }

    /// Fills places whose time has come, and lets nobody stay stopped where nobody is to be hurt any more.
    pub(super) fn tend(&mut self) -> anyhow::Result<()> {
        if !self.doomed {
            self.hands.values().try_for_each(|hand| hand.process.signal(Signal::CONT))?;
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.vacant).into_iter().partition(|(at, ..)| *at <= now);
        self.vacant = later;
        let due: Vec<(Instant, Role, usize)> = due;
        due.into_iter().try_for_each(|(_, role, slot)| self.hire(role, slot))
    }

    /// SIGKILL, and another in its place.
    pub(super) fn kill(&mut self, number: u64, at: &str) -> anyhow::Result<()> {
        let Some(hand) = self.hands.remove(&number) else { return Ok(()) };
        hand.process.kill(&mut self.tasks)?;
        self.tally.kills += 1;
        *self.tally.killed_at.entry(at.to_owned()).or_default() += 1;
        self.hire(hand.role, hand.slot)
    }

    pub(super) fn any_relay(&mut self) -> Option<u64> {
        let relays = self.hands.iter().filter(|(_, hand)| hand.role == Role::Relay).map(|(number, _)| *number);
        let relays: Vec<u64> = relays.collect();
        self.random.choice(relays)
    }

    pub(super) fn resume(&self, number: u64) -> anyhow::Result<()> {
        self.hands.get(&number).map_or(Ok(()), |hand| hand.process.signal(Signal::CONT))
    }

    /// Lets everybody end in order. The tally says which did not.
    pub(super) async fn finish(mut self, patience: Duration) -> anyhow::Result<Tally> {
        for hand in self.hands.values_mut() {
            hand.process.signal(Signal::CONT)?;
            hand.process.ask_to_end();
        }
        let deadline = Instant::now() + patience;
        while !self.hands.is_empty() {
            let Ok(event) = tokio::time::timeout_at(deadline, self.event()).await else { break };
            match event? {
                (number, Event::Ended) => {
                    if let Some(mut hand) = self.hands.remove(&number) {
                        let bad_end = hand.process.bad_end().await?;
                        let told = bad_end.map(|status| format!("{:?} {number}: {status}", hand.role));
                        self.tally.bad_ends.extend(told);
                    }
                }
                // It hangs where it was told to: the last kills of the row.
                (number, Event::HangsAt(name)) => {
                    if let Some(mut hand) = self.hands.remove(&number) {
                        hand.process.child.kill().await.context("cannot kill a process")?;
                        self.tally.kills += 1;
                        *self.tally.killed_at.entry(name).or_default() += 1;
                    }
                }
                (number, Event::Stopped) => self.resume(number)?,
                (_, Event::Received(count)) => self.tally.deliveries += count,
                (_, Event::Complaint(line)) => self.tally.complaint = line,
                (
                    _,
                    Event::Works
                    | Event::Due
                    | Event::Continue
                    | Event::Unknown(_)
                    | Event::Parks(_)
                    | Event::LanesLost,
                ) => {}
            }
        }
        for (number, hand) in &mut self.hands {
            self.tally.bad_ends.push(format!("{:?} {number}: still there after {patience:?}", hand.role));
            hand.process.child.kill().await.context("cannot kill a process")?;
        }
        Ok(self.tally)
    }
}
