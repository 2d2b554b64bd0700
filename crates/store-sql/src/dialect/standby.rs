//! Commits that wait for a synchronous standby.
//!
//! Such a wait is no trouble of the commit: it lasts until a standby is there. If it is cut short, by an administrator or
//! by a crash of the server, the commit counts on this server alone and is lost when a standby takes over. So it isn't
//! timed out, and who finds what it left writes to the log too, and so waits behind it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use sqlx::PgConnection;
use tokio::time::{Instant, timeout};

use super::Dialect;
use super::postgres::{Backend, PostgresDialect};
use crate::connection::Call;

/// How often to look what a commit waits for that isn't answered.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A commit that took longer beside a standby that is there may be one whose wait was cancelled, and is confirmed.
const CONFIRM_AFTER: Duration = Duration::from_millis(100);
/// A confirmation that took longer is confirmed in turn.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
/// How often a commit is confirmed before its end counts as unknown.
const CONFIRM_MAX: usize = 10;
/// Where no standby can be seen, so many confirmations in a row, each this quick, show that the server hides it: as many
/// cancellations don't come as fast.
const QUICK: (usize, Duration) = (5, Duration::from_millis(20));

/// The commits of this process that wait for a standby.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<(usize, String)>);

/// One of them.
struct Waiting<'w>(&'w Waits);

impl Waits {
    fn begin(&self, standbys: &str) -> Waiting<'_> {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.0 += 1;
        waits.1 = format!("a commit waits for a standby (synchronous_standby_names = '{standbys}')");
        Waiting(self)
    }

    /// What they wait for.
    pub(super) fn what(&self) -> Option<String> {
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (waits.0 > 0).then(|| waits.1.clone())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).0 -= 1;
    }
}

impl PostgresDialect {
    /// Waits for the answer to a commit: as long as the server may take, and as long as it waits for a standby. `None`:
    /// there is no answer.
    pub(super) async fn answer_of<T>(&self, backend: Backend, commit: impl Future<Output = T>) -> Option<T> {
        let mut commit = pin!(commit);
        let mut silent_since = Instant::now();
        let mut waiting = None;
        loop {
            if let Ok(answer) = timeout(LOOK_EVERY, &mut commit).await {
                return Some(answer);
            }
            tokio::select! {
                biased;
                answer = &mut commit => return Some(answer),
                standbys = self.awaited(backend) => match standbys {
                    Some(standbys) => {
                        waiting.get_or_insert_with(|| self.waits.begin(&standbys));
                        silent_since = Instant::now();
                    }
                    None if silent_since.elapsed() >= self.patience() => return None,
                    None => {}
                },
            }
        }
    }

    /// Makes sure that a standby has a commit that waited for one, and took as long as `took`. An administrator may have
    /// cancelled its wait; the server then says "committed" beside a warning, which the driver doesn't hand on. But then it was
    /// long, or there is no standby. Either way something is written behind it, and waited for.
    pub(super) async fn confirm(
        &self,
        backend: Backend,
        mut took: Duration,
        connection: &mut PgConnection,
    ) -> Result<(), StoreError> {
        let (attempted, mut limit, mut quick) = ("commit", CONFIRM_AFTER, 0);
        for _ in 0..CONFIRM_MAX {
            if took < limit && self.is_followed(connection).await? {
                return Ok(());
            }
            let begun = Instant::now();
            let written = Call::new(attempted, &self.witness).fetch(connection);
            let Some(written) = self.answer_of(backend, written).await else {
                return Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    attempted,
                    "the server did not answer in time",
                ));
            };
            if written?.is_empty() {
                return Ok(());
            }
            (took, limit) = (begun.elapsed(), CONFIRMED_WITHIN);
            quick = if took < QUICK.1 { quick + 1 } else { 0 };
            if quick == QUICK.0 {
                return Ok(());
            }
        }
        let why = "it is not known whether a standby has it: each wait for one took long, or was cancelled";
        Err(StoreError::new(StoreErrorKind::Unavailable, attempted, why))
    }

    async fn is_followed(&self, connection: &mut PgConnection) -> Result<bool, StoreError> {
        let rows = Call::new("look for a standby", &self.followed).fetch(connection).await?;
        rows.into_iter().next().map_or(Ok(false), |mut row| row.int::<i64>().map(|there| there != 0))
    }

    /// The standbys that the commit of `backend` waits for; `None` if it doesn't, or that can't be seen.
    async fn awaited(&self, backend: Backend) -> Option<String> {
        let mut connection = self.bystander().await.ok()?;
        self.standbys(backend, &mut connection).await.ok().flatten()
    }

    /// The same, on a connection that is there.
    pub(super) async fn standbys(
        &self,
        backend: Backend,
        connection: &mut PgConnection,
    ) -> Result<Option<String>, StoreError> {
        let call = Call::new("look what a commit waits for", &self.standby);
        let rows = call.value(backend.pid).value(backend.started_micros).fetch(connection).await?;
        rows.into_iter().next().map(|mut row| row.text()).transpose()
    }
}
