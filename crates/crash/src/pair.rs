//! A primary, the standby that its commits wait for, and the address under which clients find whichever is the primary.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use oncebox_testkit::proxy::Proxy;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::server::Server;

pub(crate) struct Pair {
    servers: Mutex<Servers>,
    proxy: Proxy,
    url: String,
}

struct Servers {
    primary: Server,
    standby: Server,
    /// Those that died stay until the end: their folders are theirs.
    dead: Vec<Server>,
}

/// How long commits wait for the standby that is gone before the primary dies as well.
const WAITS: Duration = Duration::from_millis(1_500);

/// How often somebody loses patience with a commit that waits.
const PATIENCE: Duration = Duration::from_millis(60);

impl Pair {
    /// `None` if PostgreSQL cannot be had here.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Option<Self>> {
        let Some(primary) = Server::start(folder)? else { return Ok(None) };
        let standby = primary.standby("standby-0").await?;
        primary.call("synchronous").await?;
        let proxy = Proxy::start(address(&primary)?).await.context("cannot start the proxy")?;
        let url = primary.url().replacen(&address(&primary)?.to_string(), &proxy.addr().to_string(), 1);
        Ok(Some(Self { servers: Mutex::new(Servers { primary, standby, dead: Vec::new() }), proxy, url }))
    }

    /// Whichever is the primary.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The standby goes away; commits wait for it, and their waits are ended by administrators; the primary dies with what
    /// only it has; the standby takes over, and gets a standby of its own.
    pub(crate) async fn fail_over(&self) -> anyhow::Result<()> {
        let mut servers = self.servers.lock().await;
        let Servers { primary, standby, dead } = &mut *servers;
        standby.kill().await?;
        let mut admin = PgConnection::connect(primary.url()).await.context("cannot reach the primary")?;
        let until = Instant::now() + WAITS;
        for end in ["pg_terminate_backend", "pg_cancel_backend"].iter().cycle() {
            if Instant::now() >= until {
                break;
            }
            let sql = format!("select count({end}(pid)) from pg_stat_activity where wait_event = 'SyncRep'");
            sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await.context("cannot end the waits")?;
            sleep(PATIENCE).await;
        }
        primary.kill().await?;
        standby.restart().await?;
        standby.call("promote").await?;
        self.proxy.redirect(address(standby)?);
        let next = standby.standby(&format!("standby-{}", dead.len() + 1)).await?;
        standby.call("synchronous").await?;
        let old = std::mem::replace(primary, std::mem::replace(standby, next));
        dead.push(old);
        Ok(())
    }
}

fn address(server: &Server) -> anyhow::Result<SocketAddr> {
    let options: PgConnectOptions = server.url().parse().ok().context("cannot read the PostgreSQL URL")?;
    Ok(format!("{}:{}", options.get_host(), options.get_port()).parse()?)
}
