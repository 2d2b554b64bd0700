//! A sink in memory: it keeps what was published, and refuses what it is told to.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sink::{Outgoing, Sink, SinkCapabilities, SinkError, SinkErrorKind};

/// What was published, in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemorySink {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    published: Vec<Outgoing>,
    /// Topics that do not exist.
    missing: HashSet<String>,
    /// Nothing gets through, as far as the publisher can tell.
    is_away: bool,
    payload_bytes_max: Option<usize>,
}

impl MemorySink {
    /// A sink that takes everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes no payload above this size.
    #[must_use]
    pub fn with_payload_bytes_max(self, max: usize) -> Self {
        self.shared().payload_bytes_max = Some(max);
        self
    }

    /// From now on there is no such topic; or there is.
    pub fn set_missing(&self, topic: &str, is_missing: bool) {
        if is_missing {
            self.shared().missing.insert(topic.to_owned());
        } else {
            self.shared().missing.remove(topic);
        }
    }

    /// From now on it can't be reached; or it can.
    pub fn set_away(&self, is_away: bool) {
        self.shared().is_away = is_away;
    }

    /// Everything that was published and not taken before, in order.
    pub fn take(&self) -> Vec<Outgoing> {
        std::mem::take(&mut self.shared().published)
    }

    /// How many were published and not taken.
    pub fn len(&self) -> usize {
        self.shared().published.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for MemorySink {
    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities { fails_by_prefix: true, ..SinkCapabilities::none("memory") }
    }

    async fn open(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        let mut shared = self.shared();
        let mut answers = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let (topic, bytes) = (&outgoing.topic, outgoing.message.payload.len());
            let refused = |kind, reason: String| Err(SinkError::new(kind, format!("publish to {topic}"), reason));
            answers.push(if shared.is_away {
                refused(SinkErrorKind::Unavailable, "the sink is away".to_owned())
            } else if shared.missing.contains(topic) {
                refused(SinkErrorKind::Configuration, "there is no such topic".to_owned())
            } else if let Some(max) = shared.payload_bytes_max.filter(|max| bytes > *max) {
                refused(SinkErrorKind::Refused, format!("its payload has {bytes} bytes, and {max} are allowed"))
            } else {
                shared.published.push(outgoing.clone());
                Ok(())
            });
        }
        answers
    }
}

impl fmt::Debug for MemorySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySink").field("published", &self.len()).finish()
    }
}
