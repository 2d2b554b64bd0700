//! One message's whole life, as far as it is still known: what became of it at each consumer, where copies of it wait,
//! what it emitted, which replays it was in, and what operators did to it.
//!
//! Nothing here holds a payload or the value of a header.

use std::collections::{BTreeMap, BTreeSet};

use oncebox_core::archive::Archives;
use oncebox_core::audit::{AuditEntry, Audits};
use oncebox_core::horizon::{Consumers, KnownConsumer};
use oncebox_core::journal::{JournalOf, Journaled, Journals};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::replay::ReplayId;
use oncebox_core::trail::{Beyond, TrailOutbox, TrailQueued, TrailRecord, Trails, WhichOutbox};
use oncebox_core::{Key, OutcomeKind, Store, Timestamp};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::admin::Admin;
use crate::error::Error;
use crate::outbox::OutboxView;
use crate::replay::ReplayView;
use crate::view::{ParkedView, maybe_time, time};

/// Of each kind of trace, so many are shown: a message has a handful.
const TRACES_MAX: usize = 100;

/// So many entries of the audit log are read at a time.
const ENTRIES_PAGE: usize = 200;

/// Which message is looked for: by its id, by keys, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sought {
    id: Option<String>,
    keys: Vec<Key>,
}

impl Sought {
    /// The message with this id. Consumers that find messages by id have its record under it; where ids are unique within
    /// a producer only, name that producer.
    pub fn id(id: &str, source: Option<&str>) -> Self {
        let mut keys: Vec<Key> = Key::id(id).into_iter().collect();
        keys.extend(source.and_then(|source| Key::parts([source.as_bytes(), id.as_bytes()]).ok()));
        Self { id: Some(id.to_owned()), keys }
    }

    /// The message under one of these keys.
    pub fn keys(keys: Vec<Key>) -> Self {
        Self { id: None, keys }
    }

    fn with(&mut self, key: Key) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
    }

    /// Its keys, as they stand in the inbox: a second key that catches a business duplicate has its own namespace.
    fn all_keys(&self) -> Vec<Key> {
        let business = self.keys.iter().filter_map(|key| Key::parts([&b"business"[..], key.as_bytes()]).ok());
        self.keys.iter().cloned().chain(business).collect()
    }
}

/// What is still known of a message.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Life {
    /// Whether anything is.
    pub known: bool,
    /// Its id, where one was given or found.
    pub id: Option<String>,
    /// What it says it is, where a copy of it is left.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// At each consumer.
    pub consumers: Vec<LifeAt>,
    /// There are more deliveries in the journal than are shown.
    pub more_deliveries: bool,
    /// Copies in the queues of the store.
    pub queued: Vec<QueuedView>,
    /// The message itself, on its way out.
    pub outbox: Vec<OutboxView>,
    /// What its handlers emitted, as long as the rows are there.
    pub emitted: Vec<OutboxView>,
    /// The replays that revived it last.
    pub replays: Vec<ReplayView>,
    /// What operators did to it, the newest first.
    pub actions: Vec<Deeds>,
    /// Where older rows were not looked at, because there are too many: `queues`, `parked`, `outbox`, `audit`. What was not
    /// found there may be there.
    pub not_looked_at: Vec<&'static str>,
}

impl Life {
    /// So many entries of the audit log are looked at: the newest.
    pub const ENTRIES_MAX: usize = 2_000;
}

/// What became of a message at one consumer.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LifeAt {
    /// The consumer; `*` for the records that consumers with global keys share.
    pub consumer: String,
    /// What the inbox remembers.
    pub records: Vec<RecordView>,
    /// What is parked.
    pub parked: Vec<ParkedView>,
    /// What the archive knows of a record that is gone.
    pub archived: Option<ArchivedView>,
    /// Its deliveries, the newest first, where a journal is kept.
    pub deliveries: Vec<DeliveryView>,
    /// Up to when its records were deleted; `None`: none ever was.
    #[serde(serialize_with = "maybe_time")]
    pub horizon: Option<Timestamp>,
    /// What was made before this is not replayed; `None`: it has no checkpoint.
    #[serde(serialize_with = "maybe_time")]
    pub checkpoint: Option<Timestamp>,
}

/// A record that is gone, and whose key is archived. It was handled between these times; how it ended is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ArchivedView {
    /// Not before.
    #[serde(serialize_with = "time")]
    pub first_at: Timestamp,
    /// Not after.
    #[serde(serialize_with = "time")]
    pub last_at: Timestamp,
}

/// What the inbox remembers of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordView {
    /// How it ended: `applied`, `rejected`, `already_applied`, `stale`, `same_version`, or `parked`.
    pub outcome: &'static str,
    /// When.
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    /// Under which key.
    pub key: String,
    /// Why it was rejected.
    pub reason: Option<String>,
    /// It is the record of another message with this key: this one conflicts with it, and is parked.
    pub of_another: bool,
}

/// One delivery of a message, from the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeliveryView {
    /// When it ended.
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    /// How: `applied`, `rejected`, `already_applied`, `stale`, `same_version`, `duplicate`, `parked`, `behind`, `gap`, `dead`,
    /// `released`, `failed`, `lease_lost` or `stored`.
    pub ended: &'static str,
    /// Why: the likely cause of a duplicate, or the cause of a failure as `parked groups` shows it.
    pub cause: Option<String>,
    /// Which delivery it was, as the broker counts; of a message that had been parked, which try.
    pub attempt: Option<u32>,
    /// It came from where parked messages are, not from its source.
    pub was_parked: bool,
    /// How long its handler took; absent: none was called.
    pub handler_ms: Option<u32>,
    /// The process that had it.
    pub process: String,
    /// Where the message lies in its broker.
    pub coordinate: Option<String>,
}

/// A copy in a queue of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueuedView {
    /// The queue.
    pub queue: String,
    /// Its number there.
    pub row: i64,
    /// When it was added.
    #[serde(serialize_with = "time")]
    pub received_at: Timestamp,
    /// When it can be delivered, or until when it is in hand; `None`: it is processed.
    #[serde(serialize_with = "maybe_time")]
    pub visible_at: Option<Timestamp>,
    /// How often it was delivered.
    pub deliveries: u64,
    /// Why it was released last.
    pub error: Option<String>,
}

/// What an operator did to a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Deeds {
    /// The number of its entry in the audit log.
    pub entry: i64,
    /// When.
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    /// What.
    pub verb: String,
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
    /// To how many messages at once.
    pub messages: u64,
    /// By which replay.
    pub replay: Option<i64>,
    /// An edit: the message that took its place, or whose place it took.
    pub linked: Option<String>,
}

impl<S: QuarantineStore + Store<Tx: Trails>> Admin<S> {
    /// What is still known of a message, at all consumers or at one. Changes nothing.
    pub async fn message(&self, mut sought: Sought, consumer: Option<&str>) -> Result<Life, Error> {
        let only = match consumer {
            Some(name) => Some(self.consumer(name).await?.id),
            None => None,
        };
        let by_id = sought.id.is_some();
        let mut tx = self.begin().await?;
        let consumers = tx.consumers().await?;
        let queued = match &sought.id {
            Some(id) => tx.trail_queued(id, TRACES_MAX).await?,
            None => Vec::new(),
        };
        if let Some(id) = sought.id.clone() {
            for source in queued.iter().filter_map(|copy| copy.source.as_deref()) {
                sought.keys.extend(Key::parts([source.as_bytes(), id.as_bytes()]).ok());
            }
        }
        let mut parked = Vec::new();
        for row in tx.trail_parked(&sought.all_keys(), sought.id.as_deref(), TRACES_MAX).await? {
            parked.extend(tx.parked(row).await?);
        }
        parked.retain(|row: &ParkedRow| only.is_none_or(|only| row.consumer == only));
        for row in &parked {
            // A key that is made of more than the id: its record is found now.
            sought.with(row.key.clone());
            let id = row.message.id.as_ref().map(|id| id.as_str().to_owned());
            sought.id = sought.id.take().or(id);
        }
        let (keys, id) = (sought.all_keys(), sought.id.as_deref());
        let mut journal = tx.read_journal(JournalOf { consumer: only, keys: &keys, id }, TRACES_MAX + 1).await?;
        let more_deliveries = journal.len() > TRACES_MAX;
        journal.truncate(TRACES_MAX);
        for delivery in &journal {
            // Found by the id alone: its record, too, is found now.
            sought.with(delivery.key.clone());
        }
        let mut records = tx.trail_records(&sought.all_keys()).await?;
        records.retain(|record| only.is_none_or(|only| record.consumer == only || record.consumer.0 == 0));
        let consumers =
            consumers.into_iter().filter(|known| only.is_none_or(|only| known.id == only || known.id.0 == 0));
        let mut lives = Vec::new();
        for known in consumers {
            let mut life = at(&known, &records, &parked);
            if life.records.is_empty() && known.horizon.is_some() {
                life.archived = Self::archived_at(&mut tx, &known, &sought.all_keys()).await?;
            }
            lives.push((known.id, life));
        }
        for delivery in &journal {
            if let Some(life) = lives.iter_mut().find(|life| life.0 == delivery.consumer) {
                life.1.deliveries.push(DeliveryView::new(delivery));
            }
        }
        let mut lives: Vec<LifeAt> = lives.into_iter().map(|(_, life)| life).collect();
        let (mut outbox, mut emitted) = (Vec::new(), Vec::new());
        if let Some(id) = &sought.id {
            outbox = tx.trail_outbox(WhichOutbox::Id(id), TRACES_MAX).await?;
            emitted = tx.trail_outbox(WhichOutbox::CausedBy(id), TRACES_MAX).await?;
        }
        // Keys are found by an index, whatever the number of rows.
        let beyond = if sought.id.is_some() { tx.trail_beyond().await? } else { Beyond::default() };
        self.end(tx).await;
        let (actions, is_all) = self.deeds(sought.id.as_deref(), &parked).await?;
        let places = [
            ("queues", by_id && beyond.queued),
            ("parked", by_id && beyond.parked),
            ("outbox", beyond.outbox),
            ("audit", !is_all),
        ];
        let mut replays = Vec::new();
        for id in parked.iter().filter_map(|row| row.replay).collect::<BTreeSet<ReplayId>>() {
            replays.push(self.show_replay(id).await?);
        }
        let kind = kind(&parked, &queued, &outbox);
        lives.retain(|at| at.consumer != "*" || !at.records.is_empty() || at.archived.is_some());
        let is_known = |at: &LifeAt| {
            !at.records.is_empty() || !at.parked.is_empty() || at.archived.is_some() || !at.deliveries.is_empty()
        };
        let known = lives.iter().any(is_known)
            || !(queued.is_empty() && outbox.is_empty() && emitted.is_empty() && actions.is_empty());
        Ok(Life {
            known,
            id: sought.id,
            kind,
            consumers: lives,
            more_deliveries,
            queued: queued.into_iter().map(QueuedView::new).collect(),
            outbox: outbox.into_iter().map(OutboxView::new).collect(),
            emitted: emitted.into_iter().map(OutboxView::new).collect(),
            replays,
            actions,
            not_looked_at: places.into_iter().filter(|(_, is_cut)| *is_cut).map(|(place, _)| place).collect(),
        })
    }

    /// What the archive of one consumer knows of a message under one of these keys.
    async fn archived_at(tx: &mut S::Tx, known: &KnownConsumer, keys: &[Key]) -> Result<Option<ArchivedView>, Error> {
        let found = tx.archived(known.id, keys).await?;
        let own = found.into_iter().flatten().find(|found| found.consumer == known.id);
        Ok(own.map(|found| ArchivedView { first_at: found.first_at, last_at: found.last_at }))
    }

    /// What operators did to a message: entries that name its id, or the row that it is or was parked in; and whether there
    /// are no older entries than were looked at.
    async fn deeds(&self, id: Option<&str>, parked: &[ParkedRow]) -> Result<(Vec<Deeds>, bool), Error> {
        let mut about = About { id, rows: parked.iter().map(|row| row.row).collect(), replays: BTreeSet::new() };
        about.replays.extend(parked.iter().filter_map(|row| row.replay));
        let (mut deeds, mut before) = (Vec::new(), None);
        for _ in 0..Life::ENTRIES_MAX / ENTRIES_PAGE {
            let mut tx = self.begin().await?;
            let entries = tx.audit_log(before, ENTRIES_PAGE).await?;
            self.end(tx).await;
            let Some(oldest) = entries.last() else { return Ok((deeds, true)) };
            before = Some(oldest.id);
            deeds.extend(entries.into_iter().filter_map(|entry| about.read(entry)));
        }
        let mut tx = self.begin().await?;
        let is_all = tx.audit_log(before, 1).await?.is_empty();
        self.end(tx).await;
        Ok((deeds, is_all))
    }
}

/// What an entry of the audit log must name to be about a message.
struct About<'a> {
    id: Option<&'a str>,
    /// Rows that it is parked in, or was.
    rows: BTreeSet<i64>,
    replays: BTreeSet<ReplayId>,
}

impl About<'_> {
    /// The entry, if it is about the message. Entries come newest first: the last one to name the message tells its row,
    /// by which the ones before know it.
    fn read(&mut self, entry: AuditEntry) -> Option<Deeds> {
        let AuditEntry { id: number, at, action } = entry;
        let detail = read_detail(&action.detail)?;
        let is_parked = action.verb.starts_with("parked.");
        let named = |value: &Value| self.id.is_some() && value.as_str() == self.id;
        let is_old = named(&detail["supersedes"]);
        let is_new = is_parked && named(&detail["id"]);
        let listed = detail["messages"].as_array().into_iter().flatten().find(|one| named(&one["id"]));
        let mut found = is_old || is_new || listed.is_some();
        let row = listed.map_or(&detail["row"], |one| &one["row"]).as_i64();
        if is_parked && found {
            self.rows.extend(row);
        }
        if is_parked {
            let rows = detail["rows"].as_array().into_iter().flatten().filter_map(Value::as_i64);
            found |= rows.chain(detail["row"].as_i64()).any(|row| self.rows.contains(&row));
        }
        found |= action.replay.is_some_and(|replay| self.replays.contains(&replay));
        let linked = if is_old { &detail["id"] } else { &detail["supersedes"] };
        found.then(|| Deeds {
            entry: number,
            at,
            linked: linked.as_str().map(str::to_owned),
            verb: action.verb,
            who: action.who,
            why: action.why,
            messages: action.messages,
            replay: action.replay.map(|replay| replay.0),
        })
    }
}

/// The fields of an entry that name messages. An edit's entry holds a payload too, which may be nested deeper than is read.
fn read_detail(detail: &str) -> Option<Value> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(detail).ok()?;
    let named = ["id", "supersedes", "messages", "row", "rows"];
    let read = |name: &&str| Some(((*name).to_owned(), serde_json::from_str(fields.get(*name)?.get()).ok()?));
    Some(Value::Object(named.iter().filter_map(read).collect()))
}

fn at(known: &KnownConsumer, records: &[TrailRecord], parked: &[ParkedRow]) -> LifeAt {
    let name = known.name.as_str();
    let is_anothers = |record: &TrailRecord| {
        let of_key = |row: &&ParkedRow| row.consumer == record.consumer && row.key == record.key;
        parked.iter().filter(of_key).any(|row| !row.owns_record)
    };
    let records = records.iter().filter(|record| record.consumer == known.id);
    let records = records.map(|record| RecordView::new(record, is_anothers(record)));
    let parked = parked.iter().filter(|row| row.consumer == known.id);
    LifeAt {
        consumer: name.to_owned(),
        records: records.collect(),
        parked: parked.map(|row| ParkedView::new(row, name).without_content()).collect(),
        archived: None,
        deliveries: Vec::new(),
        horizon: known.horizon,
        checkpoint: known.checkpoint,
    }
}

fn kind(parked: &[ParkedRow], queued: &[TrailQueued], outbox: &[TrailOutbox]) -> Option<String> {
    let parked = parked.iter().map(|row| row.message.kind.clone());
    let queued = queued.iter().map(|copy| copy.kind.clone());
    parked.chain(queued).chain(outbox.iter().map(|row| row.kind.clone())).next()
}

impl RecordView {
    fn new(record: &TrailRecord, of_another: bool) -> Self {
        let outcome = match record.outcome {
            OutcomeKind::Applied => "applied",
            OutcomeKind::Rejected => "rejected",
            OutcomeKind::AlreadyApplied => "already_applied",
            OutcomeKind::Stale => "stale",
            OutcomeKind::Parked => "parked",
            OutcomeKind::SameVersion => "same_version",
            _ => "other",
        };
        Self { outcome, at: record.at, key: record.key.to_string(), reason: record.reason.clone(), of_another }
    }
}

impl DeliveryView {
    fn new(delivery: &Journaled) -> Self {
        let told = delivery.told.clone();
        Self {
            at: delivery.at,
            ended: told.end.name(),
            cause: told.cause,
            attempt: told.attempt,
            was_parked: told.was_parked,
            handler_ms: told.handler_millis,
            process: delivery.process.clone(),
            coordinate: told.coordinate,
        }
    }
}

impl QueuedView {
    fn new(copy: TrailQueued) -> Self {
        let TrailQueued { queue, row, received_at, visible_at, deliveries, error, .. } = copy;
        Self { queue, row, received_at, visible_at, deliveries, error }
    }
}
