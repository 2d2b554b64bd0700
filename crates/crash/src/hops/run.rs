//! One row from beginning to end: set up, feed, hurt, heal, drain, audit.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::audit::{Audit, audit};
use super::blows::Blows;
use super::crew::Crew;
use super::hand::{HandJob, Role};
use super::line::Line;
use super::row::{BrokerKind, HopsRow, Shape, Trouble};
use super::tables::{self, State, Watch};
use super::{generator, writer};
use crate::feed::Feed;
use crate::generator::Demand;
use crate::history;
use crate::place::Place;
use crate::row::{FeedKind, StoreKind};
use crate::run::Ran;
use crate::server::Server;

/// What a row runs on. The broker is killed, so nobody else may use it.
pub(crate) struct Ground<'g> {
    pub(crate) postgres: Option<&'g Server>,
    pub(crate) broker: Arc<Server>,
}

/// How often the tables are looked at.
const TICK: Duration = Duration::from_millis(50);

/// A row that has not had its faults after this long, and so much more for each time that the broker is killed, is healed
/// and says so.
const HURT_MAX: Duration = Duration::from_secs(240);
const HURT_MAX_PER_BROKER_KILL: Duration = Duration::from_secs(40);

/// With no change for this long, what waits is stuck. Long, because brokers need their time to start on a machine that has
/// other work to do; with a planted bug it is waited for less: it likely is stuck.
const STALL_MAX: Duration = Duration::from_secs(120);
const STALL_MAX_PLANTED: Duration = Duration::from_secs(8);

/// How often the broker is asked how much is left.
const LAG_EVERY: Duration = Duration::from_millis(400);

/// Processes end in order within this.
const END_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(
    row: &HopsRow,
    seed: u64,
    bug: Option<&'static str>,
    ground: &Ground<'_>,
) -> anyhow::Result<Ran> {
    let started = Instant::now();
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let place = match (row.store, ground.postgres) {
        (StoreKind::Sqlite, _) => Place::Sqlite { path: folder.path().join("store.db") },
        (StoreKind::Postgres, server) => {
            let url = server.context("this row needs PostgreSQL")?.url().to_owned();
            Place::Postgres { url, schema: format!("hops_{seed}") }
        }
    };
    tables::set_up(&place).await.context("cannot set up the tables")?;
    let line = Line::new(row.broker, ground.broker.url(), seed);
    line.set_up().await?;
    if row.broker == BrokerKind::RabbitMq {
        // Otherwise the broker would not remember the queues when it is killed.
        ground.broker.call("settle").await?;
    }
    let demand: Arc<Demand> = Arc::default();
    let mut feeding = JoinSet::new();
    match row.shape {
        Shape::TwoHops => {
            let history = history::Writer::create(&folder.path().join("history"))?;
            let feed = Feed::new(FeedKind::Failing, true, seed);
            feeding.spawn(generator::generate(line.clone(), feed, history, Arc::clone(&demand)));
        }
        Shape::Relays => {
            feeding.spawn(writer::write(place.clone(), line.second_topic(), Arc::clone(&demand), seed));
        }
    }
    let job = HandJob {
        role: Role::Relay,
        row: row.clone(),
        place: place.clone(),
        line: line.clone(),
        folder: folder.path().to_owned(),
        number: 0,
        slot: 0,
        doom: None,
    };
    let mut crew = Crew::start(job, bug, seed)?;
    let mut blows = Blows::new(row, Arc::clone(&ground.broker), seed);
    let mut watch = Watch { place: place.clone(), eye: None };
    let mut progress = Progress { changed: Instant::now(), seen: (State::default(), 0), lag: 0, asked: started };
    let mut tick = tokio::time::interval(TICK);
    let hurt_max = HURT_MAX + HURT_MAX_PER_BROKER_KILL * u32::try_from(row.broker_kills).unwrap_or(u32::MAX);
    let (mut missing, mut fed) = (0, false);
    let planted_stall = if bug.is_some() { STALL_MAX_PLANTED } else { STALL_MAX };
    loop {
        tokio::select! {
            event = crew.event() => {
                if let Some(note) = crew.react(event?)? {
                    blows.heed(&note, &mut crew)?;
                }
            }
            Some(ended) = feeding.join_next(), if !fed => {
                ended.context("what feeds the row broke down")??;
                fed = true;
            }
            _ = tick.tick() => {
                crew.tend()?;
                let Some(state) = watch.look().await else { continue };
                let made = demand.made.load(SeqCst);
                let waiting = if row.shape == Shape::TwoHops { made.saturating_sub(state.second) } else { state.outbox };
                demand.backlog.store(waiting, SeqCst);
                if fed {
                    progress.ask(&line, row).await;
                }
                progress.note(state);
                let stalled = progress.changed.elapsed() > planted_stall;
                if !demand.enough.load(SeqCst) {
                    let left = blows.left(&crew);
                    let tired = started.elapsed() > hurt_max || stalled;
                    if (left == 0 && made >= row.messages_min) || tired {
                        missing = left;
                        blows.heal(&crew).await?;
                        crew.spare();
                        demand.enough.store(true, SeqCst);
                        progress.changed = Instant::now();
                    } else {
                        blows.strike(&mut crew, state, &mut watch).await?;
                    }
                } else if fed && (progress.is_drained(row, state, made) || stalled) {
                    break;
                }
            }
        }
    }
    let tally = crew.finish(END_MAX).await?;
    // What the last ones settled at their end.
    let left = watch.look().await.context("the store is away")?;
    drop(watch);
    let Audit { mut findings, waits, published } =
        audit(row, &place, &line, folder.path(), &blows.relay_kills, left).await.context("cannot audit")?;
    findings.hung_workers = tally.bad_ends.len() as u64;
    // Stops that nobody was fenced off by have shown nothing.
    findings.missing_faults = missing + u64::from(row.trouble == Trouble::Stop && blows.fenced == 0);
    Ok(Ran {
        tally,
        cuts: 0,
        server_crashes: 0,
        broker_crashes: blows.broker_kills,
        disks_filled: 0,
        messages: demand.made.load(SeqCst),
        published,
        takeover: waits.into_iter().max(),
        findings,
        took: started.elapsed(),
    })
}

/// Whether anything still moves.
struct Progress {
    changed: Instant,
    seen: (State, u64),
    /// What the broker said last that is not settled; unknown counts as one.
    lag: u64,
    asked: Instant,
}

impl Progress {
    fn note(&mut self, state: State) {
        if self.seen != (state, self.lag) {
            self.seen = (state, self.lag);
            self.changed = Instant::now();
        }
    }

    async fn ask(&mut self, line: &Line, row: &HopsRow) {
        if row.shape == Shape::TwoHops && self.asked.elapsed() >= LAG_EVERY {
            self.lag = line.lag().await.unwrap_or(1);
            self.asked = Instant::now();
        }
    }

    fn is_drained(&self, row: &HopsRow, state: State, made: u64) -> bool {
        let hops = row.shape == Shape::Relays || (state.first >= made && state.second >= made && self.lag == 0);
        hops && state.outbox == 0 && state.parked == 0
    }
}
