//! The counters: one row for each process and part, as JSON; sums of those that are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::counters::{Counted, CountedRow, Counters, Part, Process, Tally, TallyBody};
use oncebox_core::error::StoreError;
use oncebox_core::time::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::counter_queries::CounterQueries;
use crate::dialect::Dialect;
use crate::transaction::{SqlTx, bounded};
use crate::wire::micros;

/// Under which the sums are kept.
const GONE: &[u8] = &[0; 16];

const WRITE: &str = "write counters";
const FOLD: &str = "add up counters of processes that are gone";

impl<D: Dialect> Counters for SqlTx<D> {
    async fn begin_counters(&mut self, process: &Process, tallies: &[Tally]) -> Result<(), StoreError> {
        let (patience, parts) = (self.patience(), bodies(tallies));
        let (queries, now, db) = self.parts();
        let call = Call::new(WRITE, &queries.counters.begin).value(now).value(&process.id.as_bytes()[..]);
        let call = call.value(process.label.as_str()).value(parts.as_str());
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn write_counters(&mut self, process: Uuid, tallies: &[Tally]) -> Result<bool, StoreError> {
        let (patience, parts) = (self.patience(), bodies(tallies));
        let (queries, now, db) = self.parts();
        let call = Call::new(WRITE, &queries.counters.write).value(now).value(&process.as_bytes()[..]);
        let written = bounded(patience, call.value(parts.as_str()).execute(db)).await?;
        Ok(written == tallies.len() as u64)
    }

    async fn fold_counters(&mut self, unseen: Duration, max: usize) -> Result<u64, StoreError> {
        let (patience, max) = (self.patience(), i64::try_from(max).unwrap_or(i64::MAX));
        let (queries, now, db) = self.parts();
        let take = Call::new(FOLD, &queries.counters.take_gone).value(now).value(GONE).value(micros(unseen)).value(max);
        bounded(patience, fold(db, &queries.counters, now, take)).await
    }

    async fn end_counters(&mut self, process: Uuid) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let take = Call::new(FOLD, &queries.counters.take_one).value(&process.as_bytes()[..]);
        bounded(patience, fold(db, &queries.counters, now, take)).await.map(drop)
    }

    async fn read_counters(&mut self) -> Result<Counted, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        // Asked for by itself, because there may be no row to tell it.
        let time = Call::new("read the time", &queries.operators.horizon.now).value(now);
        let call = Call::new("read counters", &queries.counters.read).value(now);
        let (time, rows) = bounded(patience, async { Ok((time.fetch(db).await?, call.fetch(db).await?)) }).await?;
        let now = time.into_iter().next().ok_or_else(|| corrupt("no time"))?.time()?;
        let rows = rows.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Counted { now, rows: rows.into_iter().flatten().collect() })
    }
}

/// What is written, by the names of the parts.
fn bodies<'t>(tallies: impl IntoIterator<Item = &'t Tally>) -> String {
    let body = |tally: &Tally| serde_json::to_value(&tally.body).unwrap_or(Value::Null);
    let parts: Map<String, Value> = tallies.into_iter().map(|tally| (tally.part.to_string(), body(tally))).collect();
    Value::Object(parts).to_string()
}

/// Adds what `take` takes away to the sums; answers how many rows.
async fn fold(
    db: &mut impl Connection,
    queries: &CounterQueries,
    now: Option<i64>,
    take: Call<'_>,
) -> Result<u64, StoreError> {
    let gone = take.fetch(db).await?;
    let taken = gone.len() as u64;
    let mut sums: BTreeMap<Part, TallyBody> = BTreeMap::new();
    for row in gone {
        // A part that only a newer version knows is lost to it; it counts for people.
        let Some((part, mut body, seen_at)) = read_part(row)? else { continue };
        body.last_seen = Some(seen_at);
        sums.entry(part).or_default().add(&body);
    }
    if sums.is_empty() {
        return Ok(taken);
    }
    let tallies = |sums: &BTreeMap<Part, TallyBody>| -> Vec<Tally> {
        sums.iter().map(|(part, body)| Tally { part: part.clone(), body: body.clone() }).collect()
    };
    let parts = bodies(&tallies(&sums));
    Call::new(FOLD, &queries.make_sum).value(now).value(GONE).value(parts.as_str()).execute(db).await?;
    for row in Call::new(FOLD, &queries.lock_sum).value(GONE).fetch(db).await? {
        if let Some((part, earlier, _)) = read_part(row)?
            && let Some(sum) = sums.get_mut(&part)
        {
            sum.add(&earlier);
        }
    }
    let parts = bodies(&tallies(&sums));
    Call::new(FOLD, &queries.write).value(now).value(GONE).value(parts.as_str()).execute(db).await?;
    Ok(taken)
}

/// The part, what was written of it, and when.
fn read_part(mut row: Row) -> Result<Option<(Part, TallyBody, i64)>, StoreError> {
    let (part, body, seen_at) = (row.text()?, row.text()?, row.int()?);
    Ok(Part::parse(&part).map(|part| (part, read_body(&body), seen_at)))
}

/// A body that can't be read counts as none: counters are for people, and must not keep them from seeing the rest.
fn read_body(text: &str) -> TallyBody {
    serde_json::from_str(text).unwrap_or_default()
}

/// `None` for a part that only a newer version knows.
fn read(mut row: Row) -> Result<Option<CountedRow>, StoreError> {
    let _now: i64 = row.int()?;
    let id = Uuid::from_slice(&row.bytes()?).map_err(|_| corrupt("a process without an id"))?;
    let (part, label) = (row.text()?, row.text()?);
    let (began_at, seen_at, body) = (row.time()?, row.time()?, row.text()?);
    let Some(part) = Part::parse(&part) else { return Ok(None) };
    let tally = Tally { part, body: read_body(&body) };
    let last_seen = tally.body.last_seen.and_then(|micros| Timestamp::from_microsecond(micros).ok());
    let seen_at = if id == Process::GONE { last_seen.unwrap_or(seen_at) } else { seen_at };
    Ok(Some(CountedRow { process: Process { id, label }, began_at, seen_at, tally }))
}
