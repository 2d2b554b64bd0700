//! One row from beginning to end: set up, feed, hurt, heal, drain, audit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::audit::{Findings, audit};
use crate::blows::Blows;
use crate::broker::Broker;
use crate::feed::Feed;
use crate::fleet::{Fleet, Tally};
use crate::generator::{Demand, Outlet, generate};
use crate::history;
use crate::operator::Operator;
use crate::pair::Pair;
use crate::place::{Eye, Place};
use crate::row::{Row, SourceKind, StoreKind};
use crate::server::{Disk, Server};
use crate::worker::{Doom, Job};

/// What rows run on.
pub(crate) struct Ground<'g> {
    pub(crate) server: Option<&'g Server>,
    pub(crate) disk: Option<&'g Disk>,
    pub(crate) pair: Option<&'g Pair>,
}

/// How a row went.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) tally: Tally,
    pub(crate) cuts: u64,
    pub(crate) server_crashes: u64,
    pub(crate) broker_crashes: u64,
    pub(crate) disks_filled: u64,
    pub(crate) messages: u64,
    /// Messages that relays published, those that came again included.
    pub(crate) published: u64,
    /// The longest that a lane of a dead relay stood still, where that is timed.
    pub(crate) takeover: Option<Duration>,
    pub(crate) findings: Findings,
    pub(crate) took: Duration,
}

/// How often the tables are looked at.
const TICK: Duration = Duration::from_millis(25);

/// How often an operator looks.
const VISITS: Duration = Duration::from_millis(120);

/// A row that has not had its faults after this long is healed and says so.
const HURT_MAX: Duration = Duration::from_secs(240);

/// With no change for this long, what waits is stuck. Long, because a machine that has other work to do is no finding; with
/// a planted bug it is waited for less: it likely is stuck.
const STALL_MAX: Duration = Duration::from_secs(60);
const STALL_MAX_PLANTED: Duration = Duration::from_secs(4);

const MESSAGES_MAX: u64 = 60_000;

/// Workers end in order within this.
const END_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn run(row: &Row, seed: u64, bug: Option<&'static str>, ground: &Ground<'_>) -> anyhow::Result<Ran> {
    let started = Instant::now();
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let place = place(row, seed, folder.path(), ground)?;
    place.set_up().await.context("cannot set up the tables")?;
    let broker = match row.source {
        SourceKind::Broker | SourceKind::Uncounted => Some(Arc::new(Broker::start(false).await?)),
        SourceKind::Partitions => Some(Arc::new(Broker::start(true).await?)),
        _ => None,
    };
    let mut blows = Blows::prepare(row, seed, &place, ground, broker.clone()).await?;
    let operator = if row.operator { Some(Operator::new(&place).await?) } else { None };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut visited = Instant::now();
    let job = Job {
        row: row.clone(),
        place: blows.place_of_workers().clone(),
        broker: broker.as_ref().map(|broker| broker.addr()),
        folder: folder.path().to_owned(),
        number: 0,
        seed,
        doom: Doom::None,
        deployed: false,
        strange: false,
    };
    let outlet = match &broker {
        Some(broker) => Outlet::Broker(Arc::clone(broker)),
        None => Outlet::Queue(Box::new(place.sender(row).await?)),
    };
    let demand: Arc<Demand> = Arc::default();
    let mut generator = JoinSet::new();
    let feed = Feed::new(row.feed, row.copies_allowed(), seed).late(row.late);
    generator.spawn(generate(
        feed,
        outlet,
        history::Writer::create(&folder.path().join("history"))?,
        Arc::clone(&demand),
        row.messages_min,
    ));

    let mut watch = Watch { place: place.clone(), broker, eye: None };
    let mut fleet = Fleet::start(job, bug, true)?;
    let mut tick = tokio::time::interval(TICK);
    let mut changed = (Instant::now(), 0);
    let mut sent = false;
    let mut missing = 0;
    let mut backlog = loop {
        let enough = demand.enough.load(SeqCst);
        tokio::select! {
            event = fleet.event() => {
                fleet.react(event?, !enough)?;
                blows.follow(&mut fleet);
            }
            Some(ended) = generator.join_next(), if !sent => {
                ended.context("the generator broke down")??;
                sent = true;
            }
            _ = tick.tick() => {
                let Some(state) = watch.look().await else {
                    blows.strike(&mut fleet, None).await?;
                    continue;
                };
                let backlog = state.backlog;
                demand.backlog.store(backlog, SeqCst);
                // What a state is, as one number: it changes while anything moves.
                let mark = state.effects.wrapping_mul(1_000_003).wrapping_add(backlog).wrapping_mul(1_009) + state.dead;
                if mark != changed.1 {
                    changed = (Instant::now(), mark);
                }
                let stalled = changed.0.elapsed() > if bug.is_some() { STALL_MAX_PLANTED } else { STALL_MAX };
                // What is dead when everything is over is revived until none is.
                let ends = sent && backlog == 0;
                if let Some(operator) = &operator
                    && visited.elapsed() > VISITS
                {
                    visited = Instant::now();
                    // A store that is away for an operator too is looked at again later.
                    let _ = operator.revive(|| ends || random.bool()).await;
                }
                let made = demand.made.load(SeqCst);
                let seen = state.effects + state.parked;
                if row.late && !fleet.is_deployed() && (seen >= row.messages_min / 2 || enough) {
                    fleet.deploy(!enough)?;
                }
                if !enough {
                    let left = row.blows.saturating_sub(blows.count(&fleet.tally));
                    let tired = started.elapsed() > HURT_MAX || made > MESSAGES_MAX || stalled;
                    if (left == 0 && made >= row.messages_min) || tired {
                        missing = left;
                        blows.heal();
                        demand.enough.store(true, SeqCst);
                    } else if left > 0 {
                        blows.strike(&mut fleet, Some(state.effects)).await?;
                    }
                    // Else it had its faults and waits for its messages: more of them might let nothing through.
                } else if sent && ((backlog == 0 && !(row.operator && state.dead > 0)) || stalled) {
                    break backlog;
                }
            }
        }
    };
    let tally = fleet.finish(END_MAX).await?;
    // What the last workers settled at their end.
    if let Some(state) = watch.look().await {
        backlog = state.backlog;
    }
    let (cuts, server_crashes, disks_filled) = (blows.cuts(), blows.server_crashes, blows.disks_filled);
    drop(watch);
    let mut findings = audit(row, &place, folder.path(), backlog).await.context("cannot audit")?;
    findings.hung_workers = tally.bad_ends.len() as u64;
    findings.missing_faults = missing;
    if row.has_no_deadlock() {
        findings.deadlocks = blows.deadlocks(&place).await?;
    }
    let messages = demand.made.load(SeqCst);
    let (broker_crashes, published, takeover) = (0, 0, None);
    let took = started.elapsed();
    Ok(Ran { tally, cuts, server_crashes, broker_crashes, disks_filled, messages, published, takeover, findings, took })
}

fn place(row: &Row, seed: u64, folder: &Path, ground: &Ground<'_>) -> anyhow::Result<Place> {
    match row.store {
        StoreKind::Sqlite => {
            let folder = ground.disk.map_or(folder, |disk| &disk.path);
            Ok(Place::Sqlite { path: folder.join(format!("store-{seed}.db")) })
        }
        StoreKind::Postgres => {
            let url = match (ground.pair, ground.server) {
                (Some(pair), _) => pair.url(),
                (None, Some(server)) => server.url(),
                (None, None) => anyhow::bail!("this row needs PostgreSQL"),
            };
            Ok(Place::Postgres { url: url.to_owned(), schema: format!("crash_{seed}") })
        }
    }
}

/// Looks at the tables, over a connection that may have to be opened again.
struct Watch {
    place: Place,
    broker: Option<Arc<Broker>>,
    eye: Option<Eye>,
}

struct State {
    effects: u64,
    backlog: u64,
    /// Messages that are set aside for a person.
    dead: u64,
    /// Messages that are set aside for whatever reason.
    parked: u64,
}

impl Watch {
    /// `None` while the store is away.
    async fn look(&mut self) -> Option<State> {
        if self.eye.is_none() {
            self.eye = self.place.eye().await.ok();
        }
        let (effects, queue) = (self.place.table("crash_effects"), self.place.table("queue"));
        let parked = self.place.table("parked");
        let sql = format!(
            "select (select count(*) from {effects}), (select count(*) from {queue} where visible_at is not null)
                + (select count(*) from {parked} where due_at is not null),
                (select count(*) from {parked} where due_at is null), (select count(*) from {parked})"
        );
        match self.eye.as_mut()?.numbers(sql).await {
            Ok(rows) => {
                let row = rows.first()?;
                let broker = self.broker.as_ref().map_or(0, |broker| broker.backlog());
                let backlog = row[1] as u64 + broker as u64;
                Some(State { effects: row[0] as u64, backlog, dead: row[2] as u64, parked: row[3] as u64 })
            }
            Err(_) => {
                self.eye = None;
                None
            }
        }
    }
}
