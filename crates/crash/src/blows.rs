//! What is done to a row beside killing and stopping its workers: cut connections, crashed servers, full disks, impatient
//! administrators, other owners.

use std::sync::Arc;

use anyhow::Context;
use oncebox_testkit::proxy::{CommitCut, Proxy};
use sqlx::postgres::PgConnectOptions;

use crate::broker::Broker;
use crate::fleet::{Fleet, Tally};
use crate::pair::Pair;
use crate::place::{Eye, Place};
use crate::row::{Faults, Row};
use crate::run::Ground;
use crate::server::{Disk, Server};

pub(crate) struct Blows<'g> {
    faults: Faults,
    random: fastrand::Rng,
    proxy: Option<Proxy>,
    place: Place,
    server: Option<&'g Server>,
    disk: Option<&'g Disk>,
    pair: Option<&'g Pair>,
    broker: Option<Arc<Broker>>,
    /// Whoever administers the server.
    admin: Option<Eye>,
    planned_cuts: u64,
    cuts_seen: u64,
    /// Effects when something was last done; the next comes after some more.
    effects_then: u64,
    full: Option<tokio::time::Instant>,
    deadlocks_before: i64,
    pub(crate) server_crashes: u64,
    pub(crate) disks_filled: u64,
    /// Statements that were cancelled, columns that were added, partitions that changed hands, standbys that took over,
    /// workers with other keys that were started.
    others: u64,
}

/// Effects between two crashes of a server, or two times that a disk is full.
const EFFECTS_BETWEEN: u64 = 150;

/// How long a disk stays full.
const FULL_FOR: std::time::Duration = std::time::Duration::from_millis(700);

/// Effects between two changes of a table.
const EFFECTS_BETWEEN_CHANGES: u64 = 40;

/// Effects before the standby takes over.
const EFFECTS_BEFORE_FAILOVER: u64 = 150;

/// Cuts that are planned at a time.
const CUTS_AHEAD: u64 = 4;

const CUTS: [CommitCut; 4] =
    [CommitCut::BeforeForwarding, CommitCut::AfterForwarding, CommitCut::Late, CommitCut::Orphaned];

impl<'g> Blows<'g> {
    pub(crate) async fn prepare(
        row: &Row,
        seed: u64,
        place: &Place,
        ground: &Ground<'g>,
        broker: Option<Arc<Broker>>,
    ) -> anyhow::Result<Self> {
        let mut blows = Self {
            faults: row.faults,
            random: fastrand::Rng::with_seed(seed),
            proxy: None,
            place: place.clone(),
            server: ground.server,
            disk: ground.disk,
            pair: ground.pair,
            broker,
            admin: None,
            planned_cuts: 0,
            cuts_seen: 0,
            effects_then: 0,
            full: None,
            deadlocks_before: 0,
            server_crashes: 0,
            disks_filled: 0,
            others: 0,
        };
        if let (true, Place::Postgres { url, schema }) = (row.has_proxy(), place) {
            let options: PgConnectOptions = url.parse().ok().context("cannot read the PostgreSQL URL")?;
            let server = format!("{}:{}", options.get_host(), options.get_port());
            let upstream = tokio::net::lookup_host(&server).await?.next().context("the server has no address")?;
            let proxy = Proxy::start(upstream).await.context("cannot start the proxy")?;
            let url = url.replacen(&server, &proxy.addr().to_string(), 1);
            blows.place = Place::Postgres { url, schema: schema.clone() };
            blows.proxy = Some(proxy);
        }
        if row.faults == Faults::ServerCrash {
            // A commit that waits inside the server before it flushes is what a crash is to find.
            let mut eye = place.eye().await?;
            eye.execute("alter system set commit_delay = 20000".to_owned()).await?;
            eye.execute("alter system set commit_siblings = 0".to_owned()).await?;
            eye.numbers("select 1::bigint from pg_reload_conf()".to_owned()).await?;
        }
        if row.faults == Faults::Cancel {
            // What takes no time is never found at work.
            slow(place, "inbox", "0.002").await?;
            slow(place, "crash_effects", "0.004").await?;
        }
        if row.has_no_deadlock() {
            slow(place, "inbox", "0.001").await?;
            // The server looks for deadlocks before anyone gives up waiting.
            if let Place::Postgres { url, .. } = &mut blows.place {
                let mark = if url.contains('?') { '&' } else { '?' };
                url.push_str(&format!("{mark}options[deadlock_timeout]=10ms"));
            }
            blows.deadlocks_before = deadlocks(place).await?;
        }
        Ok(blows)
    }

    /// The store as workers reach it.
    pub(crate) fn place_of_workers(&self) -> &Place {
        &self.place
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.proxy.as_ref().map_or(0, Proxy::cuts)
    }

    /// How often the row's fault has happened.
    pub(crate) fn count(&self, tally: &Tally) -> u64 {
        match self.faults {
            Faults::None => 0,
            Faults::Kill | Faults::CommitKill => tally.kills,
            Faults::Stop => tally.stops,
            Faults::CommitCuts => self.cuts(),
            Faults::ServerCrash => self.server_crashes,
            Faults::DiskFull => self.disks_filled,
            Faults::Cancel | Faults::Ddl | Faults::Rebalance | Faults::Failover | Faults::OtherKey => self.others,
        }
    }

    /// Does what is due. `effects` is `None` while the store is away.
    pub(crate) async fn strike(&mut self, fleet: &mut Fleet, effects: Option<u64>) -> anyhow::Result<()> {
        match (self.faults, effects) {
            (Faults::CommitCuts | Faults::CommitKill, Some(effects)) if effects > 0 => self.cut(fleet),
            (Faults::ServerCrash, Some(effects)) if effects >= self.effects_then + EFFECTS_BETWEEN => {
                self.effects_then = effects;
                self.server_crashes += 1;
                self.server.context("this row needs a server")?.crash().await
            }
            (Faults::DiskFull, effects) => self.fill(effects).await,
            (Faults::Cancel, Some(effects)) if effects > 0 => self.cancel().await,
            (Faults::Ddl, Some(effects)) if effects >= self.effects_then + EFFECTS_BETWEEN_CHANGES => {
                self.effects_then = effects;
                self.add_column().await
            }
            (Faults::OtherKey, Some(effects)) if effects >= self.effects_then + EFFECTS_BETWEEN_CHANGES * 2 => {
                self.effects_then = effects;
                self.others += 1;
                fleet.hire_stranger()
            }
            (Faults::Failover, Some(effects)) if effects >= self.effects_then + EFFECTS_BEFORE_FAILOVER => {
                self.effects_then = effects;
                self.others += 1;
                self.pair.context("this row needs a standby")?.fail_over().await
            }
            _ => Ok(()),
        }
    }

    /// Gives the partitions of messages that are being parked to somebody else, while their owner is at it.
    pub(crate) fn follow(&mut self, fleet: &mut Fleet) {
        for key in std::mem::take(&mut fleet.parking) {
            if let Some(broker) = self.broker.as_ref().filter(|_| self.faults == Faults::Rebalance) {
                broker.pass_on(key);
                self.others += 1;
            }
        }
    }

    async fn admin(&mut self) -> anyhow::Result<&mut Eye> {
        let admin = match self.admin.take() {
            Some(admin) => admin,
            None => self.place.eye().await?,
        };
        Ok(self.admin.insert(admin))
    }

    /// Cancels what is under way, whosever it is.
    async fn cancel(&mut self) -> anyhow::Result<()> {
        let sql = "select count(*) filter (where pg_cancel_backend(pid)) from (
                select pid from pg_stat_activity
                where backend_type = 'client backend' and pid <> pg_backend_pid() and state = 'active'
                order by random() limit 2
            ) as chosen";
        self.others += self.admin().await?.number(sql.to_owned()).await? as u64;
        Ok(())
    }

    /// Adds a column to a table that handlers read. Whoever is in the way is waited for, not for long.
    async fn add_column(&mut self) -> anyhow::Result<()> {
        let (totals, at) = (self.place.table("crash_totals"), self.others);
        let admin = self.admin().await?;
        admin.execute("set lock_timeout = '2s'".to_owned()).await?;
        if admin.execute(format!("alter table {totals} add column extra_{at} bigint")).await.is_ok() {
            self.others += 1;
        }
        Ok(())
    }

    fn cut(&mut self, fleet: &mut Fleet) -> anyhow::Result<()> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        let cuts = proxy.cuts();
        if cuts > self.cuts_seen && self.faults == Faults::CommitKill {
            fleet.kill_any("inside-commit")?;
        }
        self.cuts_seen = cuts;
        let ahead = if self.faults == Faults::CommitKill { 1 } else { CUTS_AHEAD };
        while self.planned_cuts < cuts + ahead {
            // Sometimes several in a row, so that what is resolved is cut again.
            proxy.pass_commits(self.random.usize(0..3));
            proxy.cut_at_commit(CUTS[self.random.usize(0..CUTS.len())], 1);
            self.planned_cuts += 1;
        }
        Ok(())
    }

    async fn fill(&mut self, effects: Option<u64>) -> anyhow::Result<()> {
        let disk = self.disk.context("this row needs a disk")?;
        match (self.full, effects) {
            (Some(since), _) if since.elapsed() >= FULL_FOR => {
                disk.free()?;
                self.full = None;
                self.disks_filled += 1;
                if let (Place::Postgres { .. }, Some(server)) = (&self.place, self.server) {
                    // A server whose log has no room left goes down; whoever cleans up starts it again.
                    server.restart().await?;
                    self.server_crashes += 1;
                }
            }
            (None, Some(effects)) if effects >= self.effects_then + EFFECTS_BETWEEN => {
                self.effects_then = effects;
                disk.fill()?;
                self.full = Some(tokio::time::Instant::now());
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends what is under way.
    pub(crate) fn heal(&mut self) {
        self.admin = None;
        if let Some(proxy) = &self.proxy {
            proxy.heal();
        }
        if self.full.take().is_some()
            && let Some(disk) = self.disk
        {
            let _ = disk.free();
        }
    }

    /// Deadlocks that the server saw since the row began.
    pub(crate) async fn deadlocks(&self, place: &Place) -> anyhow::Result<u64> {
        Ok((deadlocks(place).await? - self.deadlocks_before) as u64)
    }
}

/// Makes each row of a table take a while to be inserted, so that two who want the same meet half-way.
async fn slow(place: &Place, table: &str, seconds: &str) -> anyhow::Result<()> {
    let (dawdle, table) = (place.table(&format!("crash_dawdle_{table}")), place.table(table));
    let body = format!("begin perform pg_sleep({seconds}); return new; end");
    let mut eye = place.eye().await?;
    eye.execute(format!("create function {dawdle}() returns trigger language plpgsql as $$ {body} $$")).await?;
    let each = format!("before insert on {table} for each row execute function {dawdle}()");
    eye.execute(format!("create trigger dawdle {each}")).await?;
    Ok(())
}

async fn deadlocks(place: &Place) -> anyhow::Result<i64> {
    Ok(place.eye().await?.number("select sum(deadlocks)::bigint from pg_stat_database".to_owned()).await?)
}
