//! The source suite on each kind of queue.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Bystander, name};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Message, Source};
use oncebox_rabbitmq::{QueueKind, RabbitSource};
use oncebox_testkit::ManualClock;
use oncebox_testkit::source::SourceFixture;

struct Queues {
    kind: QueueKind,
    single_active: bool,
    queue: String,
}

impl Queues {
    fn new(kind: QueueKind, single_active: bool) -> Self {
        Self { kind, single_active, queue: name("source") }
    }

    async fn bystander(&self) -> Option<Bystander> {
        Some(Bystander::connect(&std::env::var("ONCEBOX_TEST_RABBITMQ_URL").ok()?).await)
    }

    async fn source(&self) -> Option<RabbitSource> {
        let source = self.bystander().await?.rabbit().source(self.queue.as_str()).declare(self.kind);
        Some(if self.single_active { source.single_active() } else { source })
    }
}

impl SourceFixture for Queues {
    type Store = MemoryStore;
    type Source = RabbitSource;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<(MemoryStore, RabbitSource)> {
        Some((MemoryStore::with_clock(clock), self.source().await?))
    }

    async fn send(&self, _store: &MemoryStore, _source: &RabbitSource, messages: Vec<Message>) {
        self.bystander().await.unwrap().send(&self.queue, &messages).await;
    }

    async fn after_a_crash(&self, store: &MemoryStore, source: RabbitSource) -> Option<RabbitSource> {
        drop(source);
        let source = self.source().await?;
        source.open(store).await.unwrap();
        Some(source)
    }

    async fn advance(&self, _source: &RabbitSource, _clock: &ManualClock, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

mod quorum {
    use super::*;
    oncebox_testkit::source_suite!(Queues::new(QueueKind::Quorum, false));
}

mod classic {
    use super::*;
    oncebox_testkit::source_suite!(Queues::new(QueueKind::Classic, false));
}

mod single_active_quorum {
    use super::*;
    oncebox_testkit::source_suite!(Queues::new(QueueKind::Quorum, true));
}

mod single_active_classic {
    use super::*;
    oncebox_testkit::source_suite!(Queues::new(QueueKind::Classic, true));
}
