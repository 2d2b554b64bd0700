//! The journal of a store, whose calls go wrong by a plan.

use oncebox_core::journal::{JournalEntry, JournalOf, Journaled, Journals};
use oncebox_core::{ConsumerId, Store, StoreError, Timestamp};

use super::plan::Fault;
use super::store::{FaultyTx, injected, lost, on_transaction};

impl<S: Store<Tx: Journals>> Journals for FaultyTx<S> {
    async fn add_to_journal(&mut self, process: &str, entries: &[JournalEntry]) -> Result<(), StoreError> {
        on_transaction!(self, "add-to-journal", self.inner.add_to_journal(process, entries))
    }

    async fn read_journal(&mut self, sought: JournalOf<'_>, max: usize) -> Result<Vec<Journaled>, StoreError> {
        on_transaction!(self, "read-journal", self.inner.read_journal(sought, max))
    }

    async fn sweep_journal(&mut self, consumer: ConsumerId, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        on_transaction!(self, "sweep-journal", self.inner.sweep_journal(consumer, before, max))
    }
}
