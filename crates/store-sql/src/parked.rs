//! The parked role: messages that are set aside, leased with fences when they are due.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::failure::Class;
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::key::Key;
use oncebox_core::parked::{
    GapBefore, LeasedPark, Park, ParkLease, ParkReceipt, Parking, PutBack, Verdict, Waiting, Waits, still_parked,
};
use oncebox_core::planted;
use oncebox_core::store::ConsumerId;
use oncebox_core::time::Timestamp;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::queries::{ParkedQueries, Query};
use crate::transaction::{SqlTx, bounded};
use crate::turns;
use crate::wire::{self, Packed, error_text, micros, order_hash};

impl<D: Dialect> Parking for SqlTx<D> {
    async fn park(&mut self, parks: &[Park]) -> Result<Vec<bool>, StoreError> {
        if parks.is_empty() {
            return Ok(Vec::new());
        }
        self.unblocked.clear();
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, park(db, &queries.parked, now, parks)).await
    }

    async fn is_blocked(&mut self, consumer: ConsumerId, order_keys: &[&str]) -> Result<Vec<bool>, StoreError> {
        // Seen together with the claims: for most batches there is nothing to ask.
        if order_keys.is_empty() || self.unblocked.contains(&consumer) {
            return Ok(vec![false; order_keys.len()]);
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, is_blocked(db, &queries.parked, consumer, order_keys)).await
    }

    async fn count_blocking(
        &mut self,
        consumer: ConsumerId,
        order_keys: &[&str],
        max: u64,
    ) -> Result<Vec<u64>, StoreError> {
        if order_keys.is_empty() {
            return Ok(Vec::new());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("count parked messages", &queries.parked.count_blocking)
            .value(consumer.0)
            .value(i64::try_from(max).unwrap_or(i64::MAX))
            .column(order_keys.iter().map(|key| Some(order_hash(key))))
            .column(order_keys.iter().map(|key| Some(key.as_bytes())));
        let rows = bounded(patience, call.fetch(db)).await?;
        rows.into_iter().map(|mut row| row.int()).collect()
    }

    async fn lease_parked(&mut self, request: &ParkLease) -> Result<Vec<LeasedPark>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, lease(db, &queries.parked, now, request)).await
    }

    async fn extend_parked(&mut self, rows: &[ParkReceipt], lease: Duration) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let work = make_due(db, "extend leases of parked messages", &queries.parked.extend, now, rows, lease);
        bounded(patience, work).await
    }

    async fn end_parked(&mut self, rows: &[ParkReceipt]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let attempted = "end parked messages";
        let patience = self.patience();
        // Nothing is asked where no record said parked, and whoever is about to apply a message has reclaimed its own.
        let found_parked = self.found_parked.clone();
        let (queries, _, db) = self.parts();
        bounded(patience, async {
            if !found_parked.is_empty() && !planted::is("parked-duplicate-of-itself") {
                let call = Call::new(attempted, &queries.parked.keys).column(rows.iter().map(|row| Some(row.row)));
                for mut row in call.fetch(db).await? {
                    let (key, hash, scheme) = (row.bytes()?, row.int()?, row.int()?);
                    if found_parked.says_so_of(&key, Fingerprint::from_stored(scheme, hash)) {
                        return Err(still_parked(attempted));
                    }
                }
            }
            end(db, &queries.parked, attempted, rows).await
        })
        .await
    }

    async fn put_back(&mut self, rows: &[PutBack]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, put_back(db, &queries.parked, now, rows)).await
    }

    async fn release_parked(&mut self, rows: &[ParkReceipt], delay: Duration) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, make_due(db, "release parked messages", &queries.parked.release, now, rows, delay)).await
    }

    async fn count_gaps(&mut self, consumer: ConsumerId, order_key: &str) -> Result<u64, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("count gaps", &queries.parked.count_gaps)
            .value(consumer.0)
            .value(order_hash(order_key))
            .value(order_key.as_bytes());
        let rows = bounded(patience, call.fetch(db)).await?;
        rows.into_iter().next().ok_or_else(|| corrupt("no count of gaps"))?.int()
    }

    async fn wake_gaps(&mut self, consumer: ConsumerId, order_keys: &[&str]) -> Result<(), StoreError> {
        if order_keys.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let call = Call::new("wake what waits for a gap", &queries.parked.wake_gaps)
            .value(now)
            .value(consumer.0)
            .column(order_keys.iter().map(|key| Some(order_hash(key))))
            .column(order_keys.iter().map(|key| Some(key.as_bytes())));
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn note_wait(&mut self, consumer: ConsumerId, key: &Key) -> Result<Waiting, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let call = Call::new("note a wait", &queries.parked.note_wait);
        let call = call.value(now).value(consumer.0).value(key.as_bytes());
        let rows = bounded(patience, call.fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no count of waits"))?;
        Ok(Waiting { starts: row.int()?, waits: row.int()? })
    }

    async fn note_start(&mut self, consumer: ConsumerId, key: &Key, waited: Waiting) -> Result<u32, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let waits = i32::try_from(waited.waits).unwrap_or(i32::MAX);
        let call = Call::new("note a start", &queries.parked.note_start);
        let call = call.value(now).value(consumer.0).value(key.as_bytes()).value(waits);
        let rows = bounded(patience, call.fetch(db)).await?;
        rows.into_iter().next().ok_or_else(|| corrupt("no count of starts"))?.int()
    }

    async fn forget_starts(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("forget starts", &queries.parked.forget_starts)
            .column(keys.iter().map(|(consumer, _)| Some(consumer.0)))
            .column(keys.iter().map(|(_, key)| Some(key.as_bytes())));
        bounded(patience, call.execute(db)).await.map(drop)
    }
}

/// What a verdict becomes before it can be bound.
struct Words {
    cause: String,
    reason: String,
}

impl Words {
    fn of(verdict: &Verdict) -> Self {
        Self { cause: error_text(verdict.cause.as_str()), reason: error_text(&verdict.reason) }
    }
}

/// Binds verdicts as columns: the state, the delay, the class, the cause, the reason, the attempts.
fn verdicts<'v>(call: Call<'v>, verdicts: impl Iterator<Item = &'v Verdict> + Clone, words: &'v [Words]) -> Call<'v> {
    let attempts = |verdict: &Verdict| i32::try_from(verdict.attempts).unwrap_or(i32::MAX);
    call.column(verdicts.clone().map(|verdict| Some(verdict.waits.code())))
        .column(verdicts.clone().map(|verdict| verdict.waits.delay().map(micros)))
        .column(verdicts.clone().map(|verdict| verdict.class.map(Class::code)))
        .column(words.iter().map(|words| Some(words.cause.as_bytes())))
        .column(words.iter().map(|words| Some(words.reason.as_bytes())))
        .column(verdicts.map(|verdict| Some(attempts(verdict))))
}

fn receipts<'v>(call: Call<'v>, rows: &[ParkReceipt]) -> Call<'v> {
    call.column(rows.iter().map(|row| Some(row.row))).column(rows.iter().map(|row| Some(row.fence)))
}

async fn park(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    now: Option<i64>,
    parks: &[Park],
) -> Result<Vec<bool>, StoreError> {
    let packed = parks.iter().map(|park| Packed::new(&park.message)).collect::<Result<Vec<_>, _>>()?;
    let words: Vec<Words> = parks.iter().map(|park| Words::of(&park.verdict)).collect();
    let call = Call::new("park messages", &queries.park)
        .value(now)
        .column(parks.iter().map(|park| Some(park.consumer.0)))
        .column(parks.iter().map(|park| Some(park.key.as_bytes())))
        .column(parks.iter().map(|park| Some(park.fingerprint.hash())))
        .column(parks.iter().map(|park| Some(park.fingerprint.scheme())))
        .column(parks.iter().map(|park| Some(i16::from(park.owns_record))))
        .column(parks.iter().map(|park| park.order_key.as_deref().map(order_hash)))
        .column(parks.iter().map(|park| park.order_key.as_deref().map(str::as_bytes)));
    let call = wire::bind(verdicts(call, parks.iter().map(|park| &park.verdict), &words), &packed);
    let mut added = HashSet::new();
    for mut row in call.fetch(db).await? {
        let place: (i16, Bytes, i64, i16) = (row.int()?, row.bytes()?, row.int()?, row.int()?);
        added.insert(place);
    }
    // Taken out as it is answered: of two in one call that are the same, the first was added.
    let answer = |park: &Park| {
        let key = Bytes::copy_from_slice(park.key.as_bytes());
        added.remove(&(park.consumer.0, key, park.fingerprint.hash(), park.fingerprint.scheme()))
    };
    let added: Vec<bool> = parks.iter().map(answer).collect();
    let there = parks.iter().zip(&added).filter(|(_, added)| !**added).map(|(park, _)| park);
    own(db, queries, &there.filter(|park| park.owns_record).collect::<Vec<_>>()).await?;
    Ok(added)
}

/// Rows that were there before their records were: from now on they own them.
async fn own(db: &mut impl Connection, queries: &ParkedQueries, parks: &[&Park]) -> Result<(), StoreError> {
    if parks.is_empty() {
        return Ok(());
    }
    let call = Call::new("park messages", &queries.own)
        .column(parks.iter().map(|park| Some(park.consumer.0)))
        .column(parks.iter().map(|park| Some(park.key.as_bytes())))
        .column(parks.iter().map(|park| Some(park.fingerprint.hash())))
        .column(parks.iter().map(|park| Some(park.fingerprint.scheme())));
    let changed = call.execute(db).await?;
    let asked: HashSet<_> = parks.iter().map(|park| (park.consumer, &park.key, park.fingerprint)).collect();
    if changed == asked.len() as u64 {
        return Ok(());
    }
    // A row that was in the way a moment ago is gone: an operator discarded it, or it was ended. Committed now, the record
    // would say parked of a row that is not there.
    let why = "a message that was parked already is no longer; park it again";
    Err(StoreError::new(StoreErrorKind::Contended, "park messages", why))
}

async fn is_blocked(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    consumer: ConsumerId,
    order_keys: &[&str],
) -> Result<Vec<bool>, StoreError> {
    let call = Call::new("look for parked messages", &queries.is_blocked)
        .value(consumer.0)
        .column(order_keys.iter().map(|key| Some(order_hash(key))))
        .column(order_keys.iter().map(|key| Some(key.as_bytes())));
    let mut blocked = vec![false; order_keys.len()];
    for mut row in call.fetch(db).await? {
        let at: usize = row.int()?;
        *blocked.get_mut(at).ok_or_else(|| corrupt("an order key that was not asked for"))? = true;
    }
    Ok(blocked)
}

async fn lease(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    now: Option<i64>,
    request: &ParkLease,
) -> Result<Vec<LeasedPark>, StoreError> {
    let attempted = "lease parked messages";
    let max = i64::try_from(request.max).unwrap_or(i64::MAX);
    let picked = Call::new(attempted, &queries.pick).value(now).value(request.consumer.0).value(max).fetch(db).await?;
    let picked = picked.into_iter().map(|mut row| row.int()).collect::<Result<Vec<i64>, _>>()?;
    turns::note_behind(db, queries, attempted, now, request.consumer, (picked.len(), request.max)).await?;
    if picked.is_empty() {
        return Ok(Vec::new());
    }
    let mut leased = take(db, queries, now, &picked, request.lease).await?;
    // A statement that changes rows returns them in any order.
    let places: HashMap<i64, usize> = picked.into_iter().enumerate().map(|(at, row)| (row, at)).collect();
    leased.sort_unstable_by_key(|leased| places.get(&leased.receipt.row).copied());
    Ok(leased)
}

/// Takes rows in hand that this transaction has locked.
pub(crate) async fn take(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    now: Option<i64>,
    rows: &[i64],
    lease: Duration,
) -> Result<Vec<LeasedPark>, StoreError> {
    let take = Call::new("lease parked messages", &queries.take).value(now).value(micros(lease));
    let taken = take.column(rows.iter().copied().map(Some)).fetch(db).await?;
    taken.into_iter().map(read).collect()
}

fn read(mut row: Row) -> Result<LeasedPark, StoreError> {
    let receipt = ParkReceipt { row: row.int()?, fence: row.int()? };
    let (hash, scheme) = (row.int()?, row.int()?);
    let fingerprint = Fingerprint::from_stored(scheme, hash);
    let (owns_record, attempts, parked_at): (i64, u32, i64) = (row.int()?, row.int()?, row.int()?);
    let parked_at = Timestamp::from_microsecond(parked_at).map_err(|_| corrupt("a time that no timestamp can hold"))?;
    let (since, class, reason) = (row.time_or_null()?, row.int_or_null()?, row.text_or_null()?);
    let gap =
        since.zip(reason).map(|(since, reason)| GapBefore { class: class.and_then(Class::from_code), reason, since });
    let (message, owns_record) = (wire::read(&mut row)?, owns_record != 0);
    Ok(LeasedPark { receipt, message, fingerprint, owns_record, attempts, parked_at, gap })
}

async fn end(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    attempted: &'static str,
    rows: &[ParkReceipt],
) -> Result<(), StoreError> {
    // Before the rows go: what stands for them is found by them.
    Call::new(attempted, &queries.settle).column(rows.iter().map(|row| Some(row.row))).execute(db).await?;
    let ended = receipts(Call::new(attempted, &queries.end), rows).fetch(db).await?;
    let ended = turns::wake(db, queries, attempted, ended).await?;
    fence(attempted, ended, rows.len())
}

async fn put_back(
    db: &mut impl Connection,
    queries: &ParkedQueries,
    now: Option<i64>,
    rows: &[PutBack],
) -> Result<(), StoreError> {
    let attempted = "put back parked messages";
    // What waits for a version holds nobody up, and leaves the order key that it had.
    let leave = rows.iter().filter(|row| matches!(row.verdict.waits, Waits::Gap(_) | Waits::Missing));
    let leave: Vec<i64> = leave.map(|row| row.receipt.row).collect();
    let left = match leave.as_slice() {
        [] => Vec::new(),
        leave => Call::new(attempted, &queries.places).column(leave.iter().copied().map(Some)).fetch(db).await?,
    };
    let words: Vec<Words> = rows.iter().map(|row| Words::of(&row.verdict)).collect();
    let call = Call::new(attempted, &queries.put_back)
        .value(now)
        .column(rows.iter().map(|row| Some(row.receipt.row)))
        .column(rows.iter().map(|row| Some(row.receipt.fence)));
    let call = verdicts(call, rows.iter().map(|row| &row.verdict), &words)
        .column(rows.iter().map(|row| row.order_key.as_deref().map(order_hash)))
        .column(rows.iter().map(|row| row.order_key.as_deref().map(str::as_bytes)));
    fence(attempted, call.execute(db).await?, rows.len())?;
    turns::wake(db, queries, attempted, left).await.map(drop)
}

/// Makes rows that are still ours due after this long, by `query`. The others are left alone.
async fn make_due(
    db: &mut impl Connection,
    attempted: &'static str,
    query: &Query,
    now: Option<i64>,
    rows: &[ParkReceipt],
    after: Duration,
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    receipts(Call::new(attempted, query).value(now).value(micros(after)), rows).execute(db).await.map(drop)
}

/// Fails if fewer rows were changed than asked for.
fn fence(attempted: &'static str, changed: u64, asked: usize) -> Result<(), StoreError> {
    if changed == asked as u64 || planted::is("no-fence") {
        return Ok(());
    }
    let why = "a lease ran out and its message has a new owner";
    Err(StoreError::new(StoreErrorKind::Fenced, attempted, why))
}
