//! User code may panic wherever it is called: handlers, what they leave in futures and errors, `classify`, an error's
//! `source()`. Everything that calls it does so through here, so that a panic ends the call and not what surrounds it: on
//! a source without leases nothing brings back the messages of a task that died.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use oncebox_core::planted;

/// It panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Calls something that may panic.
pub(crate) fn call<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    if planted::is("panic-takes-messages") {
        return Ok(work());
    }
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        // What it panicked with may panic as well when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
        Panicked
    })
}

/// A future that may panic, also when it is dropped.
pub(crate) struct Guarded<F: Future + ?Sized> {
    /// `None` once it is done with.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future + ?Sized> Guarded<F> {
    pub(crate) fn new(future: Pin<Box<F>>) -> Self {
        Self { future: Some(future) }
    }

    /// Drops the future now, to learn whether that panics. Otherwise it is dropped like anything else.
    pub(crate) fn end(mut self) -> Result<(), Panicked> {
        self.drop_future()
    }

    fn drop_future(&mut self) -> Result<(), Panicked> {
        let future = self.future.take();
        call(|| drop(future))
    }
}

impl<F: Future + ?Sized> Future for Guarded<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Ready(Err(Panicked)) };
        match call(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(Panicked) => Poll::Ready(Err(Panicked)),
        }
    }
}

impl<F: Future + ?Sized> Drop for Guarded<F> {
    fn drop(&mut self) {
        let _ = self.drop_future();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Mine;

    impl Drop for Mine {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "the case said so");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        assert_eq!(call(|| 7), Ok(7));
        assert_eq!(call(|| std::panic::panic_any(Mine)), Err::<(), _>(Panicked));
        assert_eq!(Guarded::new(Box::pin(async { 7 })).await, Ok(7));
        let panics = async { assert!(std::hint::black_box(false), "the case said so") };
        assert_eq!(Guarded::new(Box::pin(panics)).await, Err(Panicked));
        let mine = Mine;
        let pending = Guarded::new(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(mine);
        }));
        assert_eq!(pending.end(), Err(Panicked));
    }
}
