//! Waiting for what another task does. The one place in tests that sleeps.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long [`eventually`] waits. Long, because it is only ever used up by a test that fails, and a loaded machine is
/// no reason to fail.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often the probe runs: short enough that no test is slow because of it.
const PROBE_EVERY: Duration = Duration::from_millis(5);

/// How long something must not happen before a test believes that it does not. A wrong adapter passes now and then on
/// a machine that is slower than this; a right one never fails.
const PATIENCE: Duration = Duration::from_millis(150);

/// What a probe answers: `bool`, or `Option<T>` to take something out of the wait.
pub trait Answer {
    /// What the wait returns.
    type Value;

    /// The value, if the wait is over.
    fn reached(self) -> Option<Self::Value>;
}

impl Answer for bool {
    type Value = ();

    fn reached(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn reached(self) -> Option<T> {
        self
    }
}

/// Waits until `probe` answers `true` or `Some`, and panics after [`DEADLINE`], naming what was `awaited`.
///
/// ```
/// # use std::sync::atomic::{AtomicBool, Ordering};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let drained = AtomicBool::new(true);
/// oncebox_testkit::eventually("the queue is drained", async || drained.load(Ordering::SeqCst)).await;
/// # }
/// ```
pub async fn eventually<A: Answer>(awaited: &str, probe: impl AsyncFnMut() -> A) -> A::Value {
    eventually_within(DEADLINE, awaited, probe).await
}

/// [`eventually`] with another deadline.
pub async fn eventually_within<A: Answer>(
    deadline: Duration,
    awaited: &str,
    mut probe: impl AsyncFnMut() -> A,
) -> A::Value {
    let start = Instant::now();
    loop {
        if let Some(value) = probe().await.reached() {
            return value;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain: {awaited}");
        sleep(PROBE_EVERY).await;
    }
}

/// Whether `future` is still not done after a short while. It is dropped then, so give it something that can be taken
/// up again, such as `join_set.join_next()`.
pub async fn stays_pending(future: impl Future) -> bool {
    timeout(PATIENCE, future).await.is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_returns_what_the_probe_found() {
        let mut probes = 0;
        let found = eventually("the third probe", async || {
            probes += 1;
            (probes == 3).then_some("found")
        });
        assert_eq!(found.await, "found");
        assert_eq!(probes, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 60s in vain: pigs fly")]
    async fn it_gives_up_and_names_what_was_awaited() {
        eventually("pigs fly", || async { false }).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_happens_stays_pending() {
        assert!(stays_pending(std::future::pending::<()>()).await);
        assert!(!stays_pending(std::future::ready(())).await);
    }
}
