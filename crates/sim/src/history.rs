//! What was sent, made before the run begins: the audit's own record.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use oncebox::{Clock, Message, MessageId};
use serde::{Deserialize, Serialize};

use crate::scenario::Scenario;

/// What a message says. Two messages under one id differ in `variant`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) variant: u32,
    /// How the handler ends, so that every way to record an outcome is taken.
    pub(crate) ends: Ends,
    /// Whether it is of the type whose handler is deployed later.
    pub(crate) late: bool,
    /// Which version of its key it is, from 1, where it is one.
    pub(crate) version: Option<u64>,
}

/// How a handler ends.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) enum Ends {
    Applied,
    WithResult,
    Rejected,
}

/// The type of messages, and the one whose handler is deployed later.
pub(crate) const KINDS: [&str; 2] = ["ordered", "shipped"];

/// One message on its way into the source. Its place in the history is its place in the source.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Duration,
    pub(crate) order: Order,
    pub(crate) message: Message,
}

impl Sent {
    pub(crate) fn key(&self) -> Option<&str> {
        self.message.order_key.as_deref()
    }
}

/// Everything that is sent, in order.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) sent: Vec<Sent>,
}

/// What is promised for a history.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    /// Ids that must take effect.
    pub(crate) due: HashSet<String>,
    /// Ids that must not: they wait behind a conflict of their order key, which nothing overtakes.
    pub(crate) held: HashSet<String>,
}

impl History {
    pub(crate) fn new(scenario: &Scenario, clock: &dyn Clock, dice: &mut fastrand::Rng) -> Self {
        let window = scenario.healed_at.as_millis() as u64;
        let mut sent = Vec::new();
        // Bursts, so that batches form.
        let bursts: Vec<u64> = (0..dice.usize(1..=6)).map(|_| dice.u64(0..window)).collect();
        // Its own dice: the others are as they were before there were hazards.
        let mut hazard = fastrand::Rng::with_seed(scenario.seed ^ 0x6c61_7465_7221);
        let mut versions: HashMap<String, u64> = HashMap::new();
        for number in 0..scenario.messages {
            let ends = [Ends::Applied, Ends::Applied, Ends::WithResult, Ends::Rejected][dice.usize(0..4)];
            let key = match dice.u32(0..10) {
                0 if scenario.hazards.gap.is_none() => None,
                0..=5 => Some("k0".to_owned()),
                _ => Some(format!("k{}", dice.usize(0..scenario.keys))),
            };
            let next = |key: &String| *versions.entry(key.clone()).and_modify(|version| *version += 1).or_insert(1);
            let order = Order {
                id: format!("m{number}"),
                variant: 0,
                ends,
                late: !scenario.hazards.deploys.is_empty() && hazard.u32(0..3) == 0,
                version: scenario.hazards.gap.and(key.as_ref()).map(next),
            };
            let at = bursts[dice.usize(0..bursts.len())];
            sent.push(Self::one(clock, at, &order, key.clone()));
            while dice.u32(0..100) < scenario.duplicates {
                let later = at + [0, 0, 1, dice.u64(0..window)][dice.usize(0..4)];
                sent.push(Self::one(clock, later, &order, key.clone()));
            }
            if dice.u32(0..1_000) < scenario.conflicts {
                let other = Order { variant: 1, ..order };
                sent.push(Self::one(clock, at + dice.u64(0..200), &other, key));
            }
        }
        sent.sort_by_key(|sent| sent.at);
        Self { sent }
    }

    fn one(clock: &dyn Clock, at: u64, order: &Order, key: Option<String>) -> Sent {
        let mut message = Message::made_by(clock, KINDS[usize::from(order.late)]);
        message.version = order.version;
        message.id = MessageId::new(order.id.clone()).ok();
        message.order_key = key;
        message.payload = serde_json::to_vec(order).unwrap_or_default().into();
        Sent { at: Duration::from_millis(at), order: order.clone(), message }
    }

    /// The place at which each message was first sent.
    pub(crate) fn first_places(&self) -> HashMap<&Order, usize> {
        let mut places = HashMap::new();
        for (place, sent) in self.sent.iter().enumerate() {
            places.entry(&sent.order).or_insert(place);
        }
        places
    }

    /// The variants of each id, in the order they were sent.
    pub(crate) fn variants(&self) -> BTreeMap<&str, Vec<&Order>> {
        let mut variants: BTreeMap<&str, Vec<&Order>> = BTreeMap::new();
        for sent in &self.sent {
            let known = variants.entry(&sent.order.id).or_default();
            if !known.contains(&&sent.order) {
                known.push(&sent.order);
            }
        }
        variants
    }

    /// What must take effect and what must not.
    pub(crate) fn promise(&self, ordered: bool) -> Promise {
        let mut promise = Promise::default();
        let mut first: HashMap<&str, u32> = HashMap::new();
        let mut blocked: HashSet<&str> = HashSet::new();
        for sent in &self.sent {
            let id = sent.order.id.as_str();
            let winner = *first.entry(id).or_insert(sent.order.variant);
            if sent.key().is_some_and(|key| ordered && blocked.contains(key)) {
                if !promise.due.contains(id) {
                    promise.held.insert(id.to_owned());
                }
            } else if winner == sent.order.variant {
                promise.due.insert(id.to_owned());
            } else {
                blocked.extend(sent.key());
            }
        }
        promise
    }
}
