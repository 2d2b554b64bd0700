//! The queue role of a store whose calls go wrong by a plan.

use std::future::Future;
use std::time::Duration;

use oncebox_core::StoreError;
use oncebox_core::queue::{
    Enqueue, Enqueued, HeldLanes, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore, QueueTx,
    RowReceipt,
};
use uuid::Uuid;

use super::plan::Fault;
use super::store::{Faulty, FaultyTx, injected, lost, on_transaction, with_fault};

impl<S: QueueStore> QueueStore for Faulty<S> {
    async fn queue(&self, spec: &QueueSpec) -> Result<QueueId, StoreError> {
        let fault = self.plan().next("queue").await;
        with_fault("queue", fault, || self.inner().queue(spec)).await
    }

    fn enqueued(&self) -> impl Future<Output = ()> + Send {
        self.inner().enqueued()
    }

    fn announce(&self) {
        self.inner().announce();
    }
}

impl<S: QueueStore> QueueTx for FaultyTx<S> {
    async fn enqueue(&mut self, queue: QueueId, messages: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        on_transaction!(self, "enqueue", self.inner.enqueue(queue, messages))
    }

    async fn lease(&mut self, request: &LeaseRequest) -> Result<Vec<Leased>, StoreError> {
        on_transaction!(self, "lease", self.inner.lease(request))
    }

    async fn settle(&mut self, queue: QueueId, rows: &[RowReceipt], keep: Keep) -> Result<(), StoreError> {
        on_transaction!(self, "settle", self.inner.settle(queue, rows, keep))
    }

    async fn release(
        &mut self,
        queue: QueueId,
        rows: &[RowReceipt],
        delay: Duration,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        on_transaction!(self, "release", self.inner.release(queue, rows, delay, reason))
    }

    async fn extend(&mut self, queue: QueueId, rows: &[RowReceipt], lease: Duration) -> Result<(), StoreError> {
        on_transaction!(self, "extend", self.inner.extend(queue, rows, lease))
    }

    async fn hold_lanes(&mut self, request: &LaneRequest) -> Result<HeldLanes, StoreError> {
        on_transaction!(self, "hold-lanes", self.inner.hold_lanes(request))
    }

    async fn leave_lanes(&mut self, queue: QueueId, owner: Uuid) -> Result<(), StoreError> {
        on_transaction!(self, "leave-lanes", self.inner.leave_lanes(queue, owner))
    }
}
