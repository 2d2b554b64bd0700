//! Ending the server process of a transaction whose end isn't known.

use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use sqlx::{PgConnection, SqlStr};
use tokio::time::Instant;

use super::Dialect;
use super::postgres::{Backend, PostgresDialect};
use crate::connection::{Call, Connection, corrupt};
use crate::error::ours;

/// How long to wait for a server process to end.
const RESOLVE_MAX: Duration = Duration::from_secs(30);

impl PostgresDialect {
    /// A connection that looks at the server processes of others. It acts as the user that connects, whatever role the
    /// options choose: processes belong to that user, who may see and end them.
    pub(super) async fn bystander(&self) -> Result<PgConnection, StoreError> {
        let mut connection = self.connect().await?.into_connection();
        let as_ourselves = connection.script(SqlStr::from_static("SET ROLE NONE")).await;
        as_ourselves.map_err(|error| ours("look at server processes", error))?;
        Ok(connection)
    }

    /// When the server process of a connection started, where the role that its options choose may not see it.
    pub(super) async fn started(&self, connection: &mut PgConnection) -> Result<i64, StoreError> {
        let attempted = "look at the own server process";
        let failed = |error| ours(attempted, error);
        connection.script(SqlStr::from_static("SET ROLE NONE")).await.map_err(failed)?;
        let rows = Call::new(attempted, &self.probe).fetch(connection).await?;
        connection.script(SqlStr::from_static("RESET ROLE")).await.map_err(failed)?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no server process"))?;
        row.int::<i32>()?;
        row.int()
    }

    /// Ends `backend` and waits until it is gone: what it hasn't committed by then, it never will. One that waits for a
    /// standby has committed, and is left to it.
    pub(super) async fn end(&self, backend: Backend) -> Result<(), StoreError> {
        let mut connection = self.bystander().await?;
        let attempted = "end the server process of an unknown transaction";
        let call = |query| Call::new(attempted, query).value(backend.pid).value(backend.started_micros);
        let deadline = Instant::now() + RESOLVE_MAX;
        let mut pause = Duration::from_millis(5);
        loop {
            // Every time: it may have come to the end of its wait.
            call(&self.terminate).fetch(&mut connection).await?;
            if call(&self.lives).fetch(&mut connection).await?.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let why = match self.standbys(backend, &mut connection).await? {
                    Some(standbys) => {
                        format!("its commit waits for a standby (synchronous_standby_names = '{standbys}')")
                    }
                    None => "it does not end".to_owned(),
                };
                return Err(StoreError::new(StoreErrorKind::Unavailable, attempted, why));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
}
