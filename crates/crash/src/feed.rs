//! The messages of a row: made by a seed, sent again now and then.

use std::collections::{BTreeMap, HashMap};

use oncebox::{Message, MessageId};
use serde::{Deserialize, Serialize};

use crate::row::FeedKind;

/// What a message says.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Order {
    /// Its number, unique among all contents.
    pub(crate) n: u64,
    /// Its order key and business row.
    pub(crate) key: u64,
    /// Its place under that key, from 1.
    pub(crate) seq: u64,
    pub(crate) id: String,
    pub(crate) role: Role,
    /// It is of the type whose handler is deployed later.
    #[serde(default)]
    pub(crate) late: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Plain,
    /// Kills each process that handles it: must never take effect, and be set aside soon.
    Killer,
    /// Fails the first times.
    Failing,
    /// Its handler swallows an SQL error the first time.
    Swallowing,
    /// Another content under an id that was used before: must never take effect, and never be forgotten.
    Conflict,
    /// A version that was sent before, under an id of its own: one of the two takes effect.
    Again,
    /// Its handler meets trouble of the server's the first times: codes that have nothing to do with the message.
    Foreign,
    /// Its handler takes the session's prepared statements away the first times.
    Deallocating,
    /// Something that the user wrote panics the first times.
    Panicking,
}

/// How often a message with a role plays it before it gives in.
pub(crate) const TIMES: u64 = 2;

/// Business rows, and order keys.
const KEYS: u64 = 24;

/// One in so many messages has the role of its feed.
const ROLE_EVERY: u64 = 29;

/// One in so many where each of them is another trouble.
pub(crate) const ROLE_OFTEN: u64 = 9;

/// Of this many messages one is of the type whose handler is deployed later.
const LATE_EVERY: u64 = 5;

/// The type of messages, and the one whose handler is deployed later.
pub(crate) const KINDS: [&str; 2] = ["ordered", "shipped"];

/// Messages in one transaction of a worker.
pub(crate) const BATCH: usize = 8;

/// How many messages later a copy may come.
const LATER_MAX: u64 = 120;

pub(crate) struct Feed {
    kind: FeedKind,
    /// Whether a message may come again.
    copies_allowed: bool,
    /// Whether some are of the type whose handler is deployed later.
    late: bool,
    random: fastrand::Rng,
    next: u64,
    seqs: HashMap<u64, u64>,
    /// Copies that wait for their turn, by the number of the message that they follow.
    copies: BTreeMap<u64, Vec<Order>>,
    /// An id to use again with another content.
    used: Option<Order>,
}

impl Feed {
    pub(crate) fn new(kind: FeedKind, copies_allowed: bool, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let (seqs, copies) = (HashMap::new(), BTreeMap::new());
        Self { kind, copies_allowed, late: false, random, next: 0, seqs, copies, used: None }
    }

    /// Some are of the type whose handler is deployed later.
    pub(crate) fn late(self, late: bool) -> Self {
        Self { late, ..self }
    }

    /// Messages that were made so far.
    pub(crate) fn made(&self) -> u64 {
        self.next
    }

    /// The next messages, copies of earlier ones among them; `true` marks what was never sent before.
    pub(crate) fn chunk(&mut self, size: usize) -> Vec<(Order, bool)> {
        let mut chunk = Vec::with_capacity(size * 2);
        for _ in 0..size {
            let order = self.order();
            if self.copied() {
                let later = order.n + self.random.u64(1..=LATER_MAX);
                self.copies.entry(later).or_default().push(order.clone());
            }
            let due = self.copies.remove(&order.n).unwrap_or_default();
            chunk.push((order, true));
            chunk.extend(due.into_iter().map(|copy| (copy, false)));
        }
        match self.kind {
            FeedKind::Echo => echoed(&chunk),
            FeedKind::Versions => {
                self.random.shuffle(&mut chunk);
                chunk
            }
            _ => chunk,
        }
    }

    /// The copies that have not come yet.
    pub(crate) fn rest(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.copies).into_values().flatten().collect()
    }

    fn order(&mut self) -> Order {
        let n = self.next;
        self.next += 1;
        if self.kind == FeedKind::Conflicts
            && n % ROLE_EVERY == ROLE_EVERY - 1
            && let Some(used) = self.used.take()
        {
            return Order { n, role: Role::Conflict, ..used };
        }
        if self.kind == FeedKind::Versions
            && n % ROLE_EVERY == ROLE_EVERY - 1
            && let Some(used) = self.used.take()
        {
            return Order { n, id: self.id(n), role: Role::Again, ..used };
        }
        let hot = self.kind == FeedKind::HotKeys && self.random.u8(..10) < 8;
        let key = self.random.u64(0..if hot { 2 } else { KEYS });
        let seq = self.seqs.entry(key).and_modify(|seq| *seq += 1).or_insert(1);
        let late = self.late && n % LATE_EVERY == LATE_EVERY / 2;
        let order = Order { n, key, seq: *seq, id: self.id(n), role: self.role(n), late };
        self.used = Some(order.clone());
        order
    }

    fn copied(&mut self) -> bool {
        match self.kind {
            FeedKind::Echo | FeedKind::Slow | FeedKind::Conflicts => false,
            _ => self.copies_allowed && self.random.u8(..10) < 3,
        }
    }

    fn role(&self, n: u64) -> Role {
        let is_often = n % ROLE_OFTEN == ROLE_OFTEN / 2;
        match self.kind {
            FeedKind::Foreign if is_often => Role::Foreign,
            FeedKind::Deallocating if is_often => Role::Deallocating,
            FeedKind::Panicking if is_often => Role::Panicking,
            _ if n % ROLE_EVERY != ROLE_EVERY / 2 => Role::Plain,
            FeedKind::Killers => Role::Killer,
            FeedKind::Failing => Role::Failing,
            FeedKind::Swallowing => Role::Swallowing,
            _ => Role::Plain,
        }
    }

    fn id(&self, n: u64) -> String {
        let (pair, second) = (n / 2, n % 2 == 1);
        match (self.kind, pair % 2, second) {
            (FeedKind::Twins, 0, false) => format!("Order-{pair}-Abc"),
            (FeedKind::Twins, 0, true) => format!("order-{pair}-abc"),
            (FeedKind::Twins, _, _) => format!("order-{}-{pair}-{second}", "long".repeat(40)),
            _ => format!("order-{n}"),
        }
    }
}

/// Each few messages, and the same again from the last to the first: two batches that want each other's keys.
fn echoed(chunk: &[(Order, bool)]) -> Vec<(Order, bool)> {
    let echo = |group: &[(Order, bool)]| {
        let back: Vec<(Order, bool)> = group.iter().rev().map(|(order, _)| (order.clone(), false)).collect();
        group.iter().cloned().chain(back).collect::<Vec<_>>()
    };
    chunk.chunks(BATCH).flat_map(echo).collect()
}

impl Order {
    pub(crate) fn message(&self) -> anyhow::Result<Message> {
        let message = Message::new(KINDS[usize::from(self.late)]).with_json(self)?.with_order_key(self.key.to_string());
        let message = message.with_version(self.seq);
        Ok(message.with_id(MessageId::new(self.id.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_makes_the_same_messages_again() {
        let made = |seed| {
            let mut feed = Feed::new(FeedKind::Killers, true, seed);
            (feed.chunk(200), feed.rest())
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
    }

    #[test]
    fn a_third_is_sent_again_and_only_conflicts_share_an_id() {
        for kind in [FeedKind::Plain, FeedKind::Twins, FeedKind::Conflicts] {
            let mut feed = Feed::new(kind, true, 1);
            let mut all = feed.chunk(1_000);
            all.extend(feed.rest().into_iter().map(|copy| (copy, false)));
            let fresh: Vec<&Order> = all.iter().filter(|(_, fresh)| *fresh).map(|(order, _)| order).collect();
            let ids: HashSet<&str> = fresh.iter().map(|order| order.id.as_str()).collect();
            let conflicts = fresh.iter().filter(|order| order.role == Role::Conflict).count();
            assert_eq!((fresh.len(), ids.len()), (1_000, 1_000 - conflicts), "{kind:?}");
            assert_eq!(conflicts > 20, kind == FeedKind::Conflicts);
            assert_eq!(all.len() > 1_200, kind != FeedKind::Conflicts, "{kind:?}: {}", all.len());
        }
    }
}
