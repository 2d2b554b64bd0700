//! Small ids for names: consumers and queues.

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::store::{ConsumerId, ConsumerName};

use crate::connection::{Call, Connection, Row};
use crate::queries::{NameQueries, Query};

/// How often two processes may choose the same id before we give up; each time one of them wins.
const TRIES_MAX: usize = 100;

/// The id of a consumer, given now if it has none.
pub(crate) async fn consumer(
    db: &mut impl Connection,
    queries: &NameQueries,
    name: &ConsumerName,
) -> Result<ConsumerId, StoreError> {
    let mut row = find_or_add(db, "register a consumer", &queries.find_consumer, &queries.add_consumer, name).await?;
    Ok(ConsumerId(row.int()?))
}

/// The row of a name, added now if there is none.
pub(crate) async fn find_or_add(
    db: &mut impl Connection,
    attempted: &'static str,
    find: &Query,
    add: &Query,
    name: &ConsumerName,
) -> Result<Row, StoreError> {
    for _ in 0..TRIES_MAX {
        let found = Call::new(attempted, find).value(name.as_str()).fetch(db).await?;
        if let Some(row) = found.into_iter().next() {
            return Ok(row);
        }
        Call::new(attempted, add).value(name.as_str()).execute(db).await?;
    }
    let why = format!("{name} got no id in {TRIES_MAX} tries");
    Err(StoreError::new(StoreErrorKind::Contended, attempted, why))
}
