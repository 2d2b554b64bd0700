//! Named places where a test can make the process die, fail, dawdle or hang.
//!
//! Without the `crashpoints` feature a crash point is an empty function. With it, each one asks the hook that
//! [`install`] set; with no hook it goes on. The hook belongs to the whole process, so tests that install one have a
//! process of their own.

use crate::error::StoreError;

/// Every crash point of a consumer, in the order in which a message meets them.
pub const ALL: &[&str] = &[
    "received",
    "begun",
    "claimed",
    "handled",
    "flushed",
    "before-commit",
    "committed",
    "acknowledged",
    "started",
    "parking",
    "parked",
    "leased",
    "extended",
];

/// Every crash point of a relay, in the order in which a row of the outbox meets them.
pub const RELAY: &[&str] = &["relay-fetched", "relay-published", "relay-confirmed", "relay-ended"];

/// Every crash point of retention, in the order in which a step meets them.
pub const RETENTION: &[&str] = &["retention-expired", "retention-committed"];

/// What happens at a crash point.
#[cfg(feature = "crashpoints")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Nothing.
    Go,
    /// The process ends at once, with no clean-up.
    Abort,
    /// The step fails as if the store had gone away.
    Fail,
    /// The step goes on after this long.
    Delay(std::time::Duration),
    /// The step never goes on. The process lives, and whoever watches it can kill it exactly here.
    Hang,
}

#[cfg(feature = "crashpoints")]
type Hook = Box<dyn Fn(&'static str) -> Action + Send + Sync>;

#[cfg(feature = "crashpoints")]
static HOOK: std::sync::RwLock<Option<Hook>> = std::sync::RwLock::new(None);

/// Sets what happens at crash points, for the whole process.
#[cfg(feature = "crashpoints")]
pub fn install(hook: impl Fn(&'static str) -> Action + Send + Sync + 'static) {
    *HOOK.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Box::new(hook));
}

/// A place where a test can interfere. Goes on unless a hook says otherwise.
#[cfg(feature = "crashpoints")]
pub async fn crashpoint(name: &'static str) -> Result<(), StoreError> {
    let action = {
        let hook = HOOK.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        hook.as_ref().map_or(Action::Go, |hook| hook(name))
    };
    match action {
        Action::Go => Ok(()),
        Action::Abort => std::process::abort(),
        Action::Fail => {
            let kind = crate::error::StoreErrorKind::Unavailable;
            Err(StoreError::new(kind, format!("pass crash point {name}"), "a test said so"))
        }
        Action::Delay(time) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Action::Hang => std::future::pending().await,
    }
}

/// A place where a test can interfere: nothing, in this build.
#[cfg(not(feature = "crashpoints"))]
#[inline(always)]
pub async fn crashpoint(_name: &'static str) -> Result<(), StoreError> {
    Ok(())
}
