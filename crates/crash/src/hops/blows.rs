//! What is done to a row beside killing processes at crash points: the broker dies and comes back, a relay is stopped until
//! others have its lanes, a relay is killed every second.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::crew::{Crew, Note};
use super::row::{HopsRow, Shape, Trouble};
use super::tables::{self, State, Watch};
use super::takeover::RelayKill;
use crate::server::Server;

pub(super) struct Blows {
    row: HopsRow,
    broker: Arc<Server>,
    random: fastrand::Rng,
    /// Killing and restarting the broker, while everything else goes on.
    under_way: JoinSet<anyhow::Result<()>>,
    /// Progress when the broker was last killed.
    progress_then: u64,
    pub(super) broker_kills: u64,
    halt: Option<Halt>,
    /// No more.
    is_healed: bool,
    stops: u64,
    /// Stopped relays that found their lanes with a new owner when they went on.
    pub(super) fenced: u64,
    last_second: Instant,
    pub(super) relay_kills: Vec<RelayKill>,
}

/// A relay that is stopped, or goes on after it was.
#[derive(Clone, Copy)]
struct Halt {
    relay: u64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Until others have its lanes.
    Stopped,
    /// Until it has found out, or did not for too long.
    GoesOn(Instant),
    /// Until the broker is back.
    BrokerReturns,
}

/// How long the broker stays away, at most, beyond the time that it takes to start.
const AWAY_MAX: u64 = 500;

/// How long a relay may take to find out that it lost its lanes.
const FINDS_OUT: Duration = Duration::from_secs(3);

impl Blows {
    pub(super) fn new(row: &HopsRow, broker: Arc<Server>, seed: u64) -> Self {
        Self {
            row: row.clone(),
            broker,
            random: fastrand::Rng::with_seed(seed),
            under_way: JoinSet::new(),
            progress_then: 0,
            broker_kills: 0,
            halt: None,
            is_healed: false,
            stops: 0,
            fenced: 0,
            last_second: Instant::now(),
            relay_kills: Vec::new(),
        }
    }

    /// How many faults are still to come.
    pub(super) fn left(&self, crew: &Crew) -> u64 {
        let hits = match self.row.trouble {
            Trouble::None => 0,
            Trouble::Kill => crew.tally.kills,
            Trouble::Stop => self.stops,
            Trouble::EachSecond => self.relay_kills.len() as u64,
        };
        // Every crash point of a relay has its victim.
        let points = match self.row.trouble {
            Trouble::Kill => oncebox::crashpoint::RELAY,
            _ => &[],
        };
        let unhit = points.iter().filter(|point| !crew.tally.killed_at.contains_key(**point)).count();
        let broker = match self.row.trouble {
            Trouble::Stop => 0,
            _ => self.row.broker_kills.saturating_sub(self.broker_kills),
        };
        self.row.kills.saturating_sub(hits) + broker + unhit as u64 + u64::from(self.is_under_way())
    }

    fn is_under_way(&self) -> bool {
        !self.under_way.is_empty() || self.halt.is_some()
    }

    /// Does what is due.
    pub(super) async fn strike(&mut self, crew: &mut Crew, state: State, watch: &mut Watch) -> anyhow::Result<()> {
        self.reap()?;
        match self.row.trouble {
            Trouble::Stop => self.mind_halt(crew, watch).await,
            Trouble::EachSecond => self.kill_one(crew, watch).await,
            Trouble::None | Trouble::Kill => {
                let progress = if self.row.shape == Shape::TwoHops { state.second } else { state.first };
                let between = self.row.messages_min / (self.row.broker_kills + 1);
                let wanted = self.broker_kills < self.row.broker_kills && self.under_way.is_empty();
                if wanted && progress >= self.progress_then + between {
                    self.progress_then = progress;
                    self.broker_kills += 1;
                    let (broker, away) = (Arc::clone(&self.broker), self.random.u64(0..AWAY_MAX));
                    self.under_way.spawn(async move {
                        broker.kill().await?;
                        tokio::time::sleep(Duration::from_millis(away)).await;
                        broker.restart().await
                    });
                }
                Ok(())
            }
        }
    }

    /// A process said something that matters here.
    pub(super) fn heed(&mut self, note: &Note, crew: &mut Crew) -> anyhow::Result<()> {
        match (note, &mut self.halt) {
            (Note::Stopped(relay), None) if !self.is_healed => {
                crew.tally.stops += 1;
                self.broker_kills += 1;
                self.halt = Some(Halt { relay: *relay, phase: Phase::Stopped });
                let broker = Arc::clone(&self.broker);
                self.under_way.spawn(async move { broker.kill().await });
                Ok(())
            }
            (Note::Stopped(relay), _) => crew.resume(*relay),
            (Note::LanesLost(relay), Some(halt)) if halt.relay == *relay => {
                // It need not be waited for any longer.
                self.fenced += 1;
                if matches!(halt.phase, Phase::GoesOn(_)) {
                    halt.phase = Phase::GoesOn(Instant::now() - FINDS_OUT);
                }
                Ok(())
            }
            (Note::LanesLost(_), _) => Ok(()),
        }
    }

    async fn mind_halt(&mut self, crew: &mut Crew, watch: &mut Watch) -> anyhow::Result<()> {
        let Some(halt) = &mut self.halt else { return Ok(()) };
        if !self.under_way.is_empty() {
            return Ok(());
        }
        match halt.phase {
            Phase::Stopped => {
                let Some(eye) = watch.eye.as_mut() else { return Ok(()) };
                if tables::lanes_of(&watch.place, eye, halt.relay).await?.1.is_empty() {
                    crew.resume(halt.relay)?;
                    halt.phase = Phase::GoesOn(Instant::now());
                }
            }
            Phase::GoesOn(since) if since.elapsed() >= FINDS_OUT => {
                halt.phase = Phase::BrokerReturns;
                let broker = Arc::clone(&self.broker);
                self.under_way.spawn(async move { broker.restart().await });
            }
            Phase::GoesOn(_) => {}
            Phase::BrokerReturns => {
                // One stop per life.
                let relay = halt.relay;
                self.halt = None;
                self.stops += 1;
                crew.kill(relay, "after-stop")?;
            }
        }
        Ok(())
    }

    async fn kill_one(&mut self, crew: &mut Crew, watch: &mut Watch) -> anyhow::Result<()> {
        if self.last_second.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        let (Some(relay), Some(eye)) = (crew.any_relay(), watch.eye.as_mut()) else { return Ok(()) };
        let (at, lanes) = tables::lanes_of(&watch.place, eye, relay).await?;
        self.last_second = Instant::now();
        self.relay_kills.push(RelayKill { at, lanes });
        crew.kill(relay, "each-second")
    }

    fn reap(&mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.under_way.try_join_next() {
            ended??;
        }
        Ok(())
    }

    /// Ends what is under way, so that the broker is there.
    pub(super) async fn heal(&mut self, crew: &Crew) -> anyhow::Result<()> {
        self.is_healed = true;
        while let Some(ended) = self.under_way.join_next().await {
            ended??;
        }
        match self.halt.take() {
            Some(Halt { phase: Phase::Stopped | Phase::GoesOn(_), relay }) => {
                crew.resume(relay)?;
                self.broker.restart().await
            }
            _ => Ok(()),
        }
    }
}
