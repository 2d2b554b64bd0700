//! How a pipeline is: what was counted, what waits, who runs it.

use std::collections::BTreeMap;

use oncebox_core::counters::{Counted, CountedRow, CounterStore, Counters, Depth, Part, Process, TallyBody};
use oncebox_core::depths::{DepthStore, Depths, LaneDepth, ParkedDepth};
use oncebox_core::horizon::Consumers;
use oncebox_core::identity::Binding;
use oncebox_core::outbox::{Backlog, Outbox, OutboxStore};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::Replays;
use oncebox_core::{StoreError, Timestamp};
use serde::Serialize;

use crate::admin::Admin;
use crate::error::Error;
use crate::replay::ReplayView;
use crate::view::time;

/// A process that was seen this many seconds ago runs. It gives a sign of life every ten, or thirty when its store is slow.
const LATELY: u64 = 60;

/// So many of the replays that are not over are told, the newest.
const REPLAYS_MAX: usize = 50;

/// How a pipeline is. Counts are of all processes, those that are gone included, up to their last flush.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// When, by the store's clock.
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    /// Every consumer that the store knows.
    pub consumers: Vec<ConsumerStatus>,
    /// The outbox and its relays.
    pub relay: RelayStatus,
    /// Replays that are not over.
    pub replays: Vec<ReplayView>,
    /// There are more of these than are told.
    pub replays_is_more: bool,
    /// Processes that were seen lately.
    pub processes: Vec<ProcessStatus>,
}

/// How a consumer is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// How it tells messages apart; `null` if it has not run since that is kept.
    pub identity: Option<String>,
    /// How it did before, while a change is bridged.
    pub identity_was: Option<String>,
    /// Why the file's consumer of this name cannot start under it; `null` if it can, or there is no file.
    pub identity_refused: Option<String>,
    /// Messages that took effect.
    pub applied: u64,
    /// Arrivals of messages that were done already.
    pub duplicates: u64,
    /// Messages whose key belonged to another.
    pub conflicts: u64,
    /// Parked now, and going on by themselves.
    pub parked: u64,
    /// More of these are parked than were counted.
    pub parked_is_more: bool,
    /// Parked now, waiting for a person; counted on its own.
    pub dead: u64,
    /// More of these are parked than were counted.
    pub dead_is_more: bool,
    /// Messages that wait at the source; `null` if nobody knows.
    pub backlog: Option<u64>,
    /// More wait than were counted.
    pub backlog_is_more: bool,
    /// How long the oldest of them waits; `null` if nobody knows, 0 if none waits.
    pub oldest_seconds: Option<u64>,
    /// What it promises; `null` before it ran for the first time.
    pub guarantee: Option<String>,
    /// What its processes wait for, if they can't go on.
    pub waiting_for: Vec<String>,
    /// Processes that run it.
    pub processes: usize,
    /// When one was last seen; `null`: never.
    pub seen_seconds_ago: Option<u64>,
    /// Everything that was counted.
    pub counters: BTreeMap<String, u64>,
}

/// How the outbox and its relays are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RelayStatus {
    /// Rows to publish.
    pub backlog: u64,
    /// There are more than were counted.
    pub backlog_is_more: bool,
    /// How long the oldest of them waits; 0 if none does.
    pub lag_seconds: u64,
    /// Rows that a broker refused, waiting for a person.
    pub refused: u64,
    /// Messages that brokers confirmed.
    pub published: u64,
    /// What relays wait for, if they can't go on.
    pub waiting_for: Vec<String>,
    /// Processes that run one.
    pub processes: usize,
    /// Lanes in which rows wait.
    pub lanes: Vec<LaneStatus>,
    /// Everything that was counted.
    pub counters: BTreeMap<String, u64>,
}

/// A lane in which rows wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneStatus {
    /// Its number.
    pub lane: i32,
    /// Rows to publish.
    pub backlog: u64,
    /// There are more than were counted.
    pub backlog_is_more: bool,
    /// How long the oldest of them waits.
    pub lag_seconds: u64,
    /// A relay holds it.
    pub held: bool,
}

/// A process that was seen lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessStatus {
    /// How to find it: `host/pid`.
    pub process: String,
    /// What it runs: `consumer invoices`, `relay`.
    pub parts: Vec<String>,
    /// For how long.
    pub up_seconds: u64,
    /// When it was last seen.
    pub seen_seconds_ago: u64,
}

/// What was read, in one transaction.
struct Seen {
    counted: Counted,
    consumers: Vec<(String, Option<Binding>, ParkedDepth)>,
    queues: BTreeMap<String, Depth>,
    lanes: Vec<LaneDepth>,
    outbox: Backlog,
}

impl<S: QuarantineStore + CounterStore + DepthStore + OutboxStore> Admin<S> {
    /// How the pipeline is. Its cost does not grow with the tables: counters are added up, and what waits is counted up to
    /// a bound.
    pub async fn status(&self) -> Result<Status, Error> {
        let mut tx = self.begin().await?;
        let seen = see(&mut tx).await?;
        let mut open = Vec::new();
        let found = tx.open_replays(None, REPLAYS_MAX + 1).await?;
        let is_more = found.len() > REPLAYS_MAX;
        for replay in found.into_iter().take(REPLAYS_MAX) {
            let way = tx.on_their_way(replay.spec.consumer, replay.id).await?;
            open.push((replay, way));
        }
        self.end(tx).await;
        let replays = if open.is_empty() { Vec::new() } else { self.named(open).await? };
        Ok(judge(&seen, replays, is_more))
    }
}

async fn see<Tx: Counters + Depths + Consumers + Outbox>(tx: &mut Tx) -> Result<Seen, StoreError> {
    let counted = tx.read_counters().await?;
    let mut consumers = Vec::new();
    for known in tx.consumers().await?.into_iter().filter(|known| known.name.as_str() != "*") {
        // Once the horizon is past it, the next start ends the bridge.
        let (horizon, mut binding) = (known.horizon.max(known.checkpoint), known.binding);
        if let Some(binding) = &mut binding {
            binding.was = binding.bridges(horizon).cloned();
        }
        consumers.push((known.name.to_string(), binding, tx.parked_depth(known.id).await?));
    }
    let places = counted.rows.iter().filter_map(|row| row.tally.body.backlog.as_ref()?.place.clone());
    let mut queues = BTreeMap::new();
    for place in places {
        if let Some(name) = place.strip_prefix("queue:")
            && !queues.contains_key(&place)
            && let Some(depth) = tx.queue_depth(name).await?
        {
            queues.insert(place, depth);
        }
    }
    Ok(Seen { counted, consumers, queues, lanes: tx.lane_depths().await?, outbox: tx.outbox_backlog().await? })
}

/// How long ago, in whole seconds.
fn ago(now: Timestamp, then: Timestamp) -> u64 {
    u64::try_from(now.duration_since(then).as_secs()).unwrap_or(0)
}

impl Seen {
    fn is_alive(&self, row: &CountedRow) -> bool {
        row.process.id != Process::GONE && ago(self.counted.now, row.seen_at) < LATELY
    }

    fn rows<'s>(&'s self, part: &'s str) -> impl Iterator<Item = &'s CountedRow> {
        self.counted.rows.iter().filter(move |row| match &row.tally.part {
            Part::Consumer(name) => part.strip_prefix("consumer ") == Some(name.as_str()),
            Part::Relay => part == "relay",
        })
    }

    fn sum(&self, part: &str) -> TallyBody {
        let mut sum = TallyBody::default();
        // The newest first: what it says of its promise counts.
        let mut rows: Vec<&CountedRow> = self.rows(part).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.seen_at));
        rows.iter().for_each(|row| sum.add(&row.tally.body));
        sum
    }

    fn waiting_for(&self, part: &str) -> Vec<String> {
        let alive = self.rows(part).filter(|row| self.is_alive(row));
        let mut waiting: Vec<String> = alive.filter_map(|row| row.tally.body.waiting_for.clone()).collect();
        waiting.sort_unstable();
        waiting.dedup();
        waiting
    }

    fn processes(&self, part: &str) -> usize {
        self.rows(part).filter(|row| self.is_alive(row)).count()
    }

    /// A queue of the store is counted now, whoever runs. Of a broker only those who run know.
    fn backlog(&self, part: &str, sum: &TallyBody) -> Option<Depth> {
        let place = sum.backlog.as_ref().and_then(|backlog| backlog.place.as_ref());
        if let Some(depth) = place.and_then(|place| self.queues.get(place)) {
            return Some(depth.clone());
        }
        let alive = self.rows(part).filter(|row| self.is_alive(row));
        let mut told = alive.filter_map(|row| row.tally.body.backlog.as_ref()).filter(|depth| depth.messages.is_some());
        let mut all = told.next()?.clone();
        for depth in told {
            let messages = depth.messages.unwrap_or(0);
            // Shares are added; of what all see alike, the largest that was seen counts.
            all.messages = all.messages.map(|sum| if depth.is_share { sum + messages } else { sum.max(messages) });
            all.oldest_seconds = all.oldest_seconds.max(depth.oldest_seconds);
        }
        Some(all)
    }

    fn consumer(&self, name: &str, binding: Option<&Binding>, parked: ParkedDepth) -> ConsumerStatus {
        let part = format!("consumer {name}");
        let sum = self.sum(&part);
        let backlog = self.backlog(&part, &sum);
        let messages = backlog.as_ref().and_then(|backlog| backlog.messages);
        let none_waits = (messages == Some(0)).then_some(0);
        ConsumerStatus {
            name: name.to_owned(),
            identity: binding.map(|binding| binding.scheme.to_string()),
            identity_was: binding.and_then(|binding| binding.was.as_ref()).map(|was| was.scheme.to_string()),
            identity_refused: None,
            applied: sum.count("handled").saturating_sub(sum.count("rejected")),
            duplicates: sum.count("transport_duplicates") + sum.count("business_duplicates"),
            conflicts: sum.count("conflicts"),
            parked: parked.waiting,
            parked_is_more: parked.waiting_is_more,
            dead: parked.dead,
            dead_is_more: parked.dead_is_more,
            backlog: messages,
            backlog_is_more: backlog.as_ref().is_some_and(|backlog| backlog.is_more),
            oldest_seconds: backlog.and_then(|backlog| backlog.oldest_seconds).or(none_waits),
            guarantee: sum.guarantee.clone(),
            waiting_for: self.waiting_for(&part),
            processes: self.processes(&part),
            seen_seconds_ago: self.rows(&part).map(|row| ago(self.counted.now, row.seen_at)).min(),
            counters: sum.counts,
        }
    }

    fn relay(&self) -> RelayStatus {
        let sum = self.sum("relay");
        let lane = |lane: &LaneDepth| LaneStatus {
            lane: lane.lane.0,
            backlog: lane.unsent,
            backlog_is_more: lane.is_more,
            lag_seconds: lane.lag_seconds,
            held: lane.is_held,
        };
        let oldest = self.outbox.oldest.map(|oldest| ago(self.counted.now, oldest));
        RelayStatus {
            backlog: self.outbox.unsent,
            backlog_is_more: self.outbox.unsent >= Backlog::COUNTED_MAX,
            lag_seconds: oldest.unwrap_or(0),
            refused: self.outbox.aside,
            published: sum.count("published"),
            waiting_for: self.waiting_for("relay"),
            processes: self.processes("relay"),
            lanes: self.lanes.iter().map(lane).collect(),
            counters: sum.counts,
        }
    }

    fn all_processes(&self) -> Vec<ProcessStatus> {
        let mut processes: BTreeMap<_, ProcessStatus> = BTreeMap::new();
        for row in self.counted.rows.iter().filter(|row| self.is_alive(row)) {
            let now = self.counted.now;
            let process = processes.entry(row.process.id).or_insert_with(|| ProcessStatus {
                process: row.process.label.clone(),
                parts: Vec::new(),
                up_seconds: ago(now, row.began_at),
                seen_seconds_ago: ago(now, row.seen_at),
            });
            process.parts.push(row.tally.part.to_string());
        }
        processes.into_values().collect()
    }
}

fn judge(seen: &Seen, replays: Vec<ReplayView>, replays_is_more: bool) -> Status {
    Status {
        at: seen.counted.now,
        consumers: seen
            .consumers
            .iter()
            .map(|(name, binding, parked)| seen.consumer(name, binding.as_ref(), *parked))
            .collect(),
        relay: seen.relay(),
        replays,
        replays_is_more,
        processes: seen.all_processes(),
    }
}
