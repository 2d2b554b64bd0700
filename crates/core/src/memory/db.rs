//! The data of a memory store and the undo log of the transaction that holds it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedMutexGuard;

use super::counters::CounterRows;
use super::horizon::Horizons;
use super::inbox::Record;
use super::journal::JournalRow;
use super::operations::Operations;
use super::outbox::OutboxRows;
use super::parked::Parked;
use super::queue::Queues;
use crate::identity::Binding;
use crate::key::Key;
use crate::offsets::TakenOffset;
use crate::parked::FoundParked;
use crate::store::ConsumerId;

/// Everything a memory store knows. Only the one open transaction touches it.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) consumers: HashMap<String, ConsumerId>,
    pub(super) bindings: HashMap<ConsumerId, Binding>,
    pub(super) inbox: HashMap<(ConsumerId, Key), Record>,
    pub(super) queues: Queues,
    pub(super) parked: Parked,
    pub(super) operations: Operations,
    pub(super) horizons: Horizons,
    pub(super) outbox: OutboxRows,
    pub(super) versions: HashMap<(ConsumerId, Key), u64>,
    pub(super) offsets: HashMap<(ConsumerId, String), TakenOffset>,
    pub(super) counters: CounterRows,
    pub(super) journal: Vec<JournalRow>,
    tables: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    appended: u64,
}

type Undo = Box<dyn FnOnce(&mut State) + Send>;

/// What a handler on a [`MemoryStore`](super::MemoryStore) writes through: named tables of keys and JSON values.
pub struct MemoryDb {
    state: OwnedMutexGuard<State>,
    undo: Vec<Undo>,
    /// How much there was to undo at the mark.
    mark: Option<usize>,
    aborted: bool,
    /// The keys that this transaction claimed: the only ones whose records it may touch.
    pub(super) claimed: HashSet<(ConsumerId, Key)>,
    /// Those of them that were reclaimed, with what their records said before.
    pub(super) reclaimed: HashMap<(ConsumerId, Key), Record>,
    /// Keys that were asked for and whose records say that their message is parked, whoever keeps them.
    pub(super) found_parked: FoundParked,
}

/// A memory table refused a statement. The transaction is aborted, whatever the handler makes of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The key is taken.
    #[error("table {table} has a row under this key already")]
    Unique {
        /// The table, which is also the name of its unique constraint.
        table: String,
    },
    /// An earlier statement failed.
    #[error("the transaction is aborted; an earlier statement failed")]
    Aborted,
    /// A value can't be written as JSON, or not read as what was asked for.
    #[error("a value of table {table} does not fit its type")]
    Value {
        /// The table.
        table: String,
    },
}

impl MemoryDb {
    pub(super) fn new(state: OwnedMutexGuard<State>) -> Self {
        Self {
            state,
            undo: Vec::new(),
            mark: None,
            aborted: false,
            claimed: HashSet::new(),
            reclaimed: HashMap::new(),
            found_parked: FoundParked::default(),
        }
    }

    /// Adds a row under a key that must be free.
    pub fn insert(&mut self, table: &str, key: &str, value: &impl Serialize) -> Result<(), MemoryError> {
        if self.get_bytes(table, key)?.is_some() {
            return self.abort(MemoryError::Unique { table: table.to_owned() });
        }
        self.put(table, key, value)
    }

    /// Adds a row under a key of its own.
    pub fn append(&mut self, table: &str, value: &impl Serialize) -> Result<(), MemoryError> {
        self.state.appended += 1;
        let key = format!("{:020}", self.state.appended);
        self.put(table, &key, value)
    }

    /// Sets the row under a key.
    pub fn put(&mut self, table: &str, key: &str, value: &impl Serialize) -> Result<(), MemoryError> {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.set(table, key, Some(bytes)),
            Err(_) => self.abort(MemoryError::Value { table: table.to_owned() }),
        }
    }

    /// Deletes the row under a key, if there is one.
    pub fn delete(&mut self, table: &str, key: &str) -> Result<(), MemoryError> {
        self.set(table, key, None)
    }

    /// The row under a key.
    pub fn get<T: DeserializeOwned>(&mut self, table: &str, key: &str) -> Result<Option<T>, MemoryError> {
        let Some(bytes) = self.get_bytes(table, key)? else { return Ok(None) };
        match serde_json::from_slice(bytes) {
            Ok(value) => Ok(Some(value)),
            Err(_) => self.abort(MemoryError::Value { table: table.to_owned() }),
        }
    }

    /// All rows of a table, by key.
    pub fn rows<T: DeserializeOwned>(&mut self, table: &str) -> Result<Vec<T>, MemoryError> {
        self.check()?;
        let rows = self.state.tables.get(table).into_iter().flat_map(BTreeMap::values);
        match rows.map(|bytes| serde_json::from_slice(bytes)).collect() {
            Ok(rows) => Ok(rows),
            Err(_) => self.abort(MemoryError::Value { table: table.to_owned() }),
        }
    }

    fn get_bytes(&self, table: &str, key: &str) -> Result<Option<&Vec<u8>>, MemoryError> {
        self.check()?;
        Ok(self.state.tables.get(table).and_then(|rows| rows.get(key)))
    }

    fn set(&mut self, table: &str, key: &str, value: Option<Vec<u8>>) -> Result<(), MemoryError> {
        self.check()?;
        let (table, key) = (table.to_owned(), key.to_owned());
        self.change(move |state| {
            let rows = state.tables.entry(table.clone()).or_default();
            let before = match value {
                Some(value) => rows.insert(key.clone(), value),
                None => rows.remove(&key),
            };
            Box::new(move |state| {
                let rows = state.tables.entry(table).or_default();
                match before {
                    Some(before) => rows.insert(key, before),
                    None => rows.remove(&key),
                };
            })
        });
        Ok(())
    }

    /// Changes the state and remembers how to undo it.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut State) -> Undo) {
        let undo = change(&mut self.state);
        self.undo.push(undo);
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// After a failed statement of our own: nothing may commit.
    pub(super) fn set_aborted(&mut self) {
        self.aborted = true;
    }

    pub(super) fn mark(&mut self) {
        self.mark = Some(self.undo.len());
    }

    /// Whether there is a mark; then everything since is undone, and a failed statement forgotten.
    pub(super) fn back_to_mark(&mut self) -> bool {
        let Some(mark) = self.mark else { return false };
        self.undo_down_to(mark);
        self.aborted = false;
        true
    }

    fn undo_down_to(&mut self, left: usize) {
        while self.undo.len() > left
            && let Some(undo) = self.undo.pop()
        {
            undo(&mut self.state);
        }
    }

    /// Keeps what was done.
    pub(super) fn commit(mut self) {
        self.undo.clear();
    }

    fn check(&self) -> Result<(), MemoryError> {
        if self.aborted { Err(MemoryError::Aborted) } else { Ok(()) }
    }

    fn abort<T>(&mut self, error: MemoryError) -> Result<T, MemoryError> {
        self.aborted = true;
        Err(error)
    }
}

impl Drop for MemoryDb {
    fn drop(&mut self) {
        self.undo_down_to(0);
    }
}

impl fmt::Debug for MemoryDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDb").field("changes", &self.undo.len()).field("aborted", &self.aborted).finish()
    }
}
