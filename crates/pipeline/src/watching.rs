//! What watches a running pipeline: counters into the store, metrics and health over HTTP.

use std::sync::Arc;

use oncebox::counting::Counting;
use oncebox::{Consumer, Relay};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::feed::Feed;
use crate::file::Pipeline;
use crate::metrics::{Door, serve};
use crate::outlet::Outlet;
use crate::retention::Retiring;
use crate::run::RunFileError;

/// Its tasks.
pub(crate) struct Watching {
    counting: JoinSet<()>,
    stop: oneshot::Sender<()>,
    /// Served until the end: whoever asks sees a pipeline that drains.
    serving: JoinSet<()>,
}

impl Watching {
    /// Begins to watch. An address that can't be had is an error: whoever scrapes it would see nothing, or someone else.
    pub(crate) async fn start<S: Backend>(
        store: &S,
        pipeline: &Pipeline,
        consumers: &[(String, Consumer<S, Feed<S>>)],
        relay: Option<&Relay<S, Outlet<S>>>,
        retiring: &Retiring<S>,
    ) -> Result<Self, RunFileError> {
        let mut counting = Counting::new(store.clone());
        for (name, consumer) in consumers {
            counting = counting.consumer(name, consumer.stats());
        }
        if let Some(relay) = relay {
            counting = counting.relay(relay.stats());
        }
        if retiring.is_needed() {
            counting = counting.retention(retiring.stats());
        }
        let mut serving = JoinSet::new();
        let mut told = None;
        if let Some(spec) = &pipeline.metrics {
            let door = Door::open(spec).await.map_err(|reason| RunFileError::Metrics { reason })?;
            told = Some(Arc::clone(&door.told));
            tracing::info!("metrics at http://{}/metrics", door.address);
            serving.spawn(serve(door));
        }
        let show = move |overview| {
            if let Some(told) = told {
                let _ = told.overview.set(overview);
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            counting
                .run_with(show, async {
                    // A sender that is gone means the same.
                    let _ = stopped.await;
                })
                .await;
        });
        Ok(Self { counting: tasks, stop, serving })
    }

    /// Everything that was watched has ended: writes what was counted last.
    pub(crate) async fn end(mut self) {
        drop(self.stop);
        while self.counting.join_next().await.is_some() {}
        self.serving.abort_all();
    }
}
