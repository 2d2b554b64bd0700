//! Asks the source now and then how much waits there.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{ConsumerStore, Source};

use super::Engine;

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Ends at once for a source that can't tell.
pub(super) async fn run<S: ConsumerStore, Src: Source<S>>(engine: Arc<Engine<S, Src>>) {
    loop {
        match tokio::time::timeout(ANSWER_MAX, engine.source.backlog()).await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(backlog))) => engine.stats.sight.set_backlog(Some(backlog)),
            // What was true before may not be any more; nobody knows.
            Ok(Err(_)) | Err(_) => engine.stats.sight.set_backlog(None),
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}
