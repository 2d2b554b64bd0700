//! Turns: of one order key the first parked row is tried, and the others wait.
//!
//! ```text
//!                ┌── a lease finds it behind another ──┐
//!                │                                     ▼
//!  looked at by leases ◀── the one before it is gone ── behind: no lease looks at it
//! ```
//!
//! Whether a row is the first is decided by looking, at each lease; that it is behind is only remembered, so that a
//! hundred thousand rows behind dead ones are not looked at again and again. What is remembered must never outlive the
//! reason: whoever takes a row away wakes the next one, and no lease notes that a row is behind while somebody takes one
//! of its order key away.

use bytes::Bytes;
use oncebox_core::error::StoreError;
use oncebox_core::store::ConsumerId;

use crate::connection::{Call, Connection, Row};
use crate::queries::ParkedQueries;

/// How many rows a lease looks at that found little to lease, to note which of them are behind others. A lease that
/// found enough looks at as many as that.
const LOOKED_AT: usize = 2_000;

/// A row that holds up nobody any more.
#[derive(Debug)]
struct Gone {
    row: i64,
    consumer: i16,
    order_hash: i64,
    order_key: Bytes,
}

impl Gone {
    /// Reads what a statement returns of a row that it took away; `None` if that held up nobody.
    fn read(mut row: Row) -> Result<Option<Self>, StoreError> {
        let (id, consumer) = (row.int()?, row.int()?);
        let (order_hash, order_key) = (row.int_or_null()?, row.bytes_or_null()?);
        Ok(order_hash.zip(order_key).map(|(order_hash, order_key)| Self { row: id, consumer, order_hash, order_key }))
    }
}

/// Wakes what stood behind rows that a statement has just taken away, and answers how many it has.
pub(crate) async fn wake(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    attempted: &'static str,
    taken: Vec<Row>,
) -> Result<u64, StoreError> {
    let count = taken.len() as u64;
    let gone = taken.into_iter().filter_map(|row| Gone::read(row).transpose()).collect::<Result<Vec<_>, _>>()?;
    if gone.is_empty() {
        return Ok(count);
    }
    let consumers = || gone.iter().map(|gone| Some(gone.consumer));
    let order_hashes = || gone.iter().map(|gone| Some(gone.order_hash));
    if let Some(keep_turns) = &queries.keep_turns {
        Call::new(attempted, keep_turns).column(consumers()).column(order_hashes()).execute(db).await?;
    }
    // A statement of its own: it sees what leases have noted up to now.
    Call::new(attempted, &queries.wake_next)
        .column(gone.iter().map(|gone| Some(gone.row)))
        .column(consumers())
        .column(order_hashes())
        .column(gone.iter().map(|gone| Some(&gone.order_key[..])))
        .execute(db)
        .await?;
    Ok(count)
}

/// Notes of rows that are due and behind others that they are. `found` is how many there were to lease, of `max`.
pub(crate) async fn note_behind(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    attempted: &'static str,
    now: Option<i64>,
    consumer: ConsumerId,
    (found, max): (usize, usize),
) -> Result<(), StoreError> {
    let look_at = if found < max { LOOKED_AT } else { max };
    let look_at = i64::try_from(look_at).unwrap_or(i64::MAX);
    let behind = Call::new(attempted, &queries.find_behind).value(now).value(consumer.0).value(look_at);
    let behind = behind.fetch(db).await?.into_iter().map(|mut row| row.int()).collect::<Result<Vec<i64>, _>>()?;
    if behind.is_empty() {
        return Ok(());
    }
    // A statement of its own: what was taken away before their turns were held is seen to be gone.
    let set = Call::new(attempted, &queries.set_behind).column(behind.into_iter().map(Some));
    set.execute(db).await.map(drop)
}
