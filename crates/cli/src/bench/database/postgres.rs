//! PostgreSQL: a schema of its own on the server that was named.

use anyhow::Context;
use oncebox::postgres::Postgres;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::sync::Mutex;

use super::{Address, Database, Keys, Settings, Statements};

pub(in crate::bench) struct PostgresPlace {
    url: String,
    options: PgConnectOptions,
    store: Postgres,
    schema: String,
    /// Looks on and cleans up; measures nothing.
    eye: Mutex<PgConnection>,
}

const TABLES: &str = "
    create table accounts (id bigint primary key, balance bigint not null default 0) with (fillfactor = 50);
    create table hand_inbox (consumer int2 not null, key uuid not null, primary key (consumer, key));
    create table hand_outbox (
        seq bigint generated always as identity primary key, id text not null, order_key text, payload bytea not null
    );";

const SETTINGS: &[&str] = &[
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
];

/// The store in a schema of its own.
pub(in crate::bench) async fn open(url: &str, schema: &str) -> anyhow::Result<Postgres> {
    // Handlers find their tables by their plain names.
    let mark = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{mark}options[search_path]={schema}");
    Ok(Postgres::builder(&url).schema(schema).connect().await?)
}

impl PostgresPlace {
    /// Opens the store and our own connection, with the schema on the search path of both.
    async fn in_schema(url: &str, schema: &str) -> anyhow::Result<Self> {
        let store = open(url, schema).await?;
        // The store has read it just now; nothing of it is repeated.
        let options: PgConnectOptions = url.parse().ok().context("cannot read the PostgreSQL URL")?;
        let options = options.options([("search_path", schema)]);
        let eye = PgConnection::connect_with(&options).await.ok().context("cannot open a second connection")?;
        Ok(Self { url: url.to_owned(), options, store, schema: schema.to_owned(), eye: Mutex::new(eye) })
    }

    async fn run(&self, statement: &str) -> anyhow::Result<()> {
        let mut eye = self.eye.lock().await;
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut *eye)
            .await
            .with_context(|| format!("cannot {statement}"))?;
        Ok(())
    }
}

impl Database for PostgresPlace {
    type Store = Postgres;
    type Connection = PgConnection;

    const NAIVE_CONNECTIONS: &'static [u16] = &[1, 8, 32];

    async fn open(url: &str) -> anyhow::Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let schema = format!("oncebox_bench_{}_{}", std::process::id(), OPENED.fetch_add(1, Relaxed));
        let place = Self::in_schema(url, &schema).await?;
        if let Err(error) = place.run(TABLES).await {
            place.close().await;
            return Err(error);
        }
        Ok(place)
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        PgConnection::connect_with(&self.options).await.context("cannot open a connection")
    }

    fn writers(lanes: u16) -> u16 {
        lanes
    }

    async fn reset(&self, accounts: i64) -> anyhow::Result<()> {
        self.run("truncate inbox, journal, hand_inbox, accounts").await?;
        self.run(&format!("insert into accounts (id) select generate_series(0, {accounts} - 1)")).await?;
        self.run("vacuum analyze accounts").await?;
        self.run("checkpoint").await
    }

    async fn total(&self) -> anyhow::Result<i64> {
        let query = "select coalesce(sum(balance), 0)::bigint from accounts";
        Ok(sqlx::query_scalar(query).fetch_one(&mut *self.eye.lock().await).await?)
    }

    async fn log_position(&self) -> anyhow::Result<Option<i64>> {
        let query = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        Ok(sqlx::query_scalar(query).fetch_one(&mut *self.eye.lock().await).await?)
    }

    async fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings::from([("database", "PostgreSQL".to_owned())]);
        let mut eye = self.eye.lock().await;
        for name in SETTINGS {
            let row = sqlx::query("select current_setting($1)").bind(name).fetch_one(&mut *eye).await?;
            settings.insert(name, row.try_get(0)?);
        }
        Ok(settings)
    }

    /// Without the primary key, which is made again afterwards: sorting is faster than inserting in random order.
    async fn fill(&self, rows: u64, keys: Keys, days_ago: u32) -> anyhow::Result<()> {
        let id = match keys {
            // A millisecond each, ending now.
            Keys::TimeOrdered => format!(
                "substring(int8send((extract(epoch from clock_timestamp()) * 1000)::int8 - {rows} + n) from 3)
                 || substring(uuid_send(gen_random_uuid()) from 7)"
            ),
            Keys::Random => "uuid_send(gen_random_uuid())".to_owned(),
        };
        self.run("alter table inbox drop constraint inbox_pkey").await?;
        self.run(&format!(
            "insert into inbox (consumer, key, fingerprint, scheme, processed_at)
             select 1, '\\x01'::bytea || {id}, hashint8extended(n, 0), 1, clock_timestamp() - interval '{days_ago} days'
             from generate_series(1, {rows}) as n"
        ))
        .await?;
        self.run("alter table inbox add primary key (consumer, key)").await?;
        self.run("vacuum analyze inbox").await?;
        self.run("checkpoint").await
    }

    async fn empty_outbox(&self) -> anyhow::Result<()> {
        self.run("truncate outbox").await
    }

    async fn settle_outbox(&self) -> anyhow::Result<()> {
        self.run("vacuum analyze outbox").await?;
        self.run("checkpoint").await
    }

    fn address(&self) -> Address {
        Address::Postgres { url: self.url.clone(), schema: self.schema.clone() }
    }

    async fn close(self) {
        // Whoever is still at work on a table holds it for a moment longer.
        let drop = format!("set lock_timeout = '10s'; drop schema {} cascade", self.schema);
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut self.eye.into_inner()).await {
            tracing::warn!("the benchmark's schema {} is still there: {error}", self.schema);
        }
    }
}

impl Statements for PgConnection {
    async fn begin(&mut self) -> sqlx::Result<()> {
        sqlx::raw_sql("begin").execute(self).await.map(drop)
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        sqlx::raw_sql("commit").execute(self).await.map(drop)
    }

    async fn rollback(&mut self) -> sqlx::Result<()> {
        sqlx::raw_sql("rollback").execute(self).await.map(drop)
    }

    async fn claim(&mut self, key: Uuid) -> sqlx::Result<bool> {
        let insert = sqlx::query("insert into hand_inbox values (1, $1) on conflict do nothing");
        Ok(insert.bind(key).execute(self).await?.rows_affected() == 1)
    }

    async fn claim_all(&mut self, keys: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
        let insert = "insert into hand_inbox select 1, * from unnest($1::uuid[]) on conflict do nothing returning key";
        sqlx::query_scalar(insert).bind(keys).fetch_all(self).await
    }

    async fn credit(&mut self, account: i64, amount: i64) -> sqlx::Result<()> {
        let update = sqlx::query("update accounts set balance = balance + $1 where id = $2");
        update.bind(amount).bind(account).execute(self).await.map(drop)
    }

    async fn credit_all(&mut self, accounts: &[i64], amounts: &[i64]) -> sqlx::Result<()> {
        let update = "update accounts set balance = balance + credit.amount
            from (
                select id, sum(amount)::bigint as amount from unnest($1::bigint[], $2::bigint[]) as c (id, amount)
                group by id
            ) credit
            where accounts.id = credit.id";
        sqlx::query(update).bind(accounts).bind(amounts).execute(self).await.map(drop)
    }
}
