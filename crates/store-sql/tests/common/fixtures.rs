//! The fixtures of both stores, for the suites of the test kit and for whoever tests on top of a store.

use std::sync::{Arc, Mutex};

use oncebox_core::{Failure, Session, Store, Transaction};
use oncebox_store_sql::{Postgres, Sqlite};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::StoreFixture;
use sqlx::{PgConnection, SqliteConnection};

use super::{LOCK_WAIT, PostgresPlace, SqlitePlace};

/// All stores that a case asked for; it is the first that it opens again.
#[derive(Default)]
pub(crate) struct SqliteFixture {
    places: Mutex<Vec<(Arc<SqlitePlace>, Arc<ManualClock>)>>,
}

impl StoreFixture for SqliteFixture {
    type Store = Sqlite;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<Sqlite> {
        let place = Arc::new(SqlitePlace::new());
        let store = place.open_with(Arc::clone(&clock)).await;
        place
            .run("create table effects (n integer primary key, id text); create table uniques (id text primary key)")
            .await;
        self.places.lock().unwrap().push((place, clock));
        Some(store)
    }

    async fn reopen(&self, _store: &Sqlite) -> Sqlite {
        let (place, clock) = self.places.lock().unwrap()[0].clone();
        place.open_with(clock).await
    }

    async fn write_effect(db: &mut SqliteConnection, id: &str) -> Result<(), Failure> {
        sqlx::query("insert into effects (id) values ($1)").bind(id).execute(db).await?;
        Ok(())
    }

    async fn effects(store: &Sqlite) -> Vec<String> {
        let mut tx = store.connect().await.unwrap().begin(LOCK_WAIT).await.unwrap();
        let effects = sqlx::query_scalar("select id from effects order by n").fetch_all(tx.db()).await.unwrap();
        tx.rollback().await;
        effects
    }

    async fn insert_unique(db: &mut SqliteConnection, key: &str) -> Result<(), Failure> {
        sqlx::query("insert into uniques values ($1)").bind(key).execute(db).await?;
        Ok(())
    }

    async fn swallow_error(db: &mut SqliteConnection) {
        sqlx::query("select no_such_column").execute(db).await.unwrap_err();
    }
}

/// All stores that a case asked for; it is the first that it opens again.
#[derive(Default)]
pub(crate) struct PostgresFixture {
    places: Mutex<Vec<(Arc<PostgresPlace>, Arc<ManualClock>)>>,
}

impl StoreFixture for PostgresFixture {
    type Store = Postgres;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<Postgres> {
        // Without a server the suite notes the skipped case by its name.
        let place = Arc::new(PostgresPlace::new()?);
        let store = place.open_with(Arc::clone(&clock)).await;
        place.run("create table effects (n bigserial, id text); create table uniques (id text primary key)").await;
        self.places.lock().unwrap().push((place, clock));
        Some(store)
    }

    async fn reopen(&self, _store: &Postgres) -> Postgres {
        let (place, clock) = self.places.lock().unwrap()[0].clone();
        place.open_with(clock).await
    }

    async fn write_effect(db: &mut PgConnection, id: &str) -> Result<(), Failure> {
        sqlx::query("insert into effects (id) values ($1)").bind(id).execute(db).await?;
        Ok(())
    }

    async fn effects(store: &Postgres) -> Vec<String> {
        let mut tx = store.connect().await.unwrap().begin(LOCK_WAIT).await.unwrap();
        let effects = sqlx::query_scalar("select id from effects order by n").fetch_all(tx.db()).await.unwrap();
        tx.rollback().await;
        effects
    }

    async fn insert_unique(db: &mut PgConnection, key: &str) -> Result<(), Failure> {
        sqlx::query("insert into uniques values ($1)").bind(key).execute(db).await?;
        Ok(())
    }

    async fn swallow_error(db: &mut PgConnection) {
        sqlx::query("select no_such_column").execute(db).await.unwrap_err();
    }
}
