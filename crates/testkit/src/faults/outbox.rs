//! The outbox role of a store whose calls go wrong by a plan.

use std::future::Future;

use oncebox_core::outbox::{AsideRow, Backlog, Fetch, Fetched, KeepSent, Outbox, OutboxStore, SentReceipt};
use oncebox_core::queue::QueueId;
use oncebox_core::sink::Outgoing;
use oncebox_core::{Store, StoreError, Timestamp};

use super::plan::Fault;
use super::store::{Faulty, FaultyTx, injected, lost, on_transaction, with_fault};

impl<S: OutboxStore> OutboxStore for Faulty<S> {
    async fn outbox(&self) -> Result<QueueId, StoreError> {
        let fault = self.plan().next("outbox").await;
        with_fault("outbox", fault, || self.inner().outbox()).await
    }

    fn emitted(&self) -> impl Future<Output = ()> + Send {
        self.inner().emitted()
    }

    fn announce_emitted(&self) {
        self.inner().announce_emitted();
    }
}

impl<S: Store<Tx: Outbox>> Outbox for FaultyTx<S> {
    async fn emit(&mut self, rows: &[Outgoing]) -> Result<(), StoreError> {
        on_transaction!(self, "emit", self.inner.emit(rows))
    }

    async fn fetch_unsent(&mut self, fetch: Fetch<'_>) -> Result<Fetched, StoreError> {
        on_transaction!(self, "fetch-unsent", self.inner.fetch_unsent(fetch))
    }

    async fn end_sent(&mut self, rows: &[SentReceipt], keep: KeepSent) -> Result<(), StoreError> {
        on_transaction!(self, "end-sent", self.inner.end_sent(rows, keep))
    }

    async fn set_unsent_aside(&mut self, rows: &[(SentReceipt, String)]) -> Result<(), StoreError> {
        on_transaction!(self, "set-unsent-aside", self.inner.set_unsent_aside(rows))
    }

    async fn page_aside(&mut self, after: i64, max: usize) -> Result<Vec<AsideRow>, StoreError> {
        on_transaction!(self, "page-aside", self.inner.page_aside(after, max))
    }

    async fn retry_aside(&mut self, rows: &[i64]) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "retry-aside", self.inner.retry_aside(rows))
    }

    async fn skip_aside(&mut self, rows: &[i64]) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "skip-aside", self.inner.skip_aside(rows))
    }

    async fn sweep_sent(&mut self, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        on_transaction!(self, "sweep-sent", self.inner.sweep_sent(before, max))
    }

    async fn outbox_backlog(&mut self) -> Result<Backlog, StoreError> {
        on_transaction!(self, "outbox-backlog", self.inner.outbox_backlog())
    }
}
