//! Running the flows of one consumer side by side: the first that ends stops the others.

use std::future::Future;
use std::pin::Pin;

use super::engine::{Drained, RunError};
use super::stop::Stop;

/// One flow, told to end by a stop that all share.
pub(super) type Running<'f> = Pin<Box<dyn Future<Output = Result<Drained, RunError>> + Send + 'f>>;

/// Runs all until `shutdown` resolves or one of them ends. The first error counts.
pub(super) async fn together<const N: usize>(
    stop: &Stop,
    flows: [Running<'_>; N],
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, RunError> {
    let mut running: Vec<Option<Running<'_>>> = flows.into_iter().map(Some).collect();
    let mut ended: Vec<Option<Result<Drained, RunError>>> = (0..N).map(|_| None).collect();
    let all = std::future::poll_fn(|cx| {
        for (flow, end) in running.iter_mut().zip(&mut ended) {
            if let Some(running) = flow
                && let std::task::Poll::Ready(result) = running.as_mut().poll(cx)
            {
                *flow = None;
                *end = Some(result);
                stop.set();
            }
        }
        if running.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    tokio::pin!(all);
    tokio::select! {
        biased;
        () = &mut all => {}
        () = shutdown => {
            stop.set();
            all.await;
        }
    }
    let mut drained = Drained::Clean;
    for end in ended.into_iter().flatten() {
        if end? == Drained::DeadlinePassed {
            drained = Drained::DeadlinePassed;
        }
    }
    Ok(drained)
}
