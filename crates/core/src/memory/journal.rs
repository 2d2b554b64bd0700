//! The journal of a memory store.

use std::collections::HashSet;

use super::db::State;
use super::queue::micros;
use super::store::MemoryTx;
use crate::error::StoreError;
use crate::journal::{JournalEntry, JournalOf, Journaled, Journals, bounded, id_hash};
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// An entry, with the hash that it is found by.
#[derive(Clone, Debug)]
pub(super) struct JournalRow {
    id_hash: Option<i64>,
    entry: Journaled,
}

impl Journals for MemoryTx {
    async fn add_to_journal(&mut self, process: &str, entries: &[JournalEntry]) -> Result<(), StoreError> {
        let now = self.now();
        let row = |entry: &JournalEntry| {
            let at = Timestamp::from_microsecond(now.saturating_sub(micros(entry.ago))).unwrap_or(Timestamp::MIN);
            let JournalEntry { consumer, key, id_hash, told, .. } = entry.clone();
            JournalRow { id_hash, entry: Journaled { consumer, at, key, process: bounded(process).to_owned(), told } }
        };
        let rows: Vec<JournalRow> = entries.iter().map(row).collect();
        let db = self.usable("write the journal")?;
        db.change(move |state| {
            let before = state.journal.len();
            state.journal.extend(rows);
            Box::new(move |state: &mut State| state.journal.truncate(before))
        });
        Ok(())
    }

    async fn read_journal(&mut self, sought: JournalOf<'_>, max: usize) -> Result<Vec<Journaled>, StoreError> {
        let hash = sought.id.map(id_hash);
        let rows = &self.usable("read the journal")?.state().journal;
        let is_meant = |row: &&JournalRow| {
            sought.consumer.is_none_or(|consumer| row.entry.consumer == consumer)
                && (sought.keys.contains(&row.entry.key) || (hash.is_some() && row.id_hash == hash))
        };
        let mut found: Vec<Journaled> = rows.iter().rev().filter(is_meant).map(|row| row.entry.clone()).collect();
        // Stable: of one time, the last that was written comes first.
        found.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        found.truncate(max);
        Ok(found)
    }

    async fn sweep_journal(&mut self, consumer: ConsumerId, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let db = self.usable("remove old entries of the journal")?;
        let is_old = |row: &JournalRow| row.entry.consumer == consumer && row.entry.at < before;
        let mut old: Vec<usize> = (0..db.state().journal.len()).filter(|at| is_old(&db.state().journal[*at])).collect();
        old.sort_by_key(|at| db.state().journal[*at].entry.at);
        let old: HashSet<usize> = old.into_iter().take(max).collect();
        let removed = old.len() as u64;
        db.change(move |state| {
            let all = std::mem::take(&mut state.journal);
            let kept = all.iter().enumerate().filter(|(at, _)| !old.contains(at)).map(|(_, row)| row.clone());
            state.journal = kept.collect();
            Box::new(move |state: &mut State| state.journal = all)
        });
        Ok(removed)
    }
}
