//! Which rows of a batch may be under way at once.
//!
//! Of one topic and order key, a row must not overtake another. Where the sink confirms by prefix, a batch goes out whole;
//! otherwise in rounds, each with one row per topic and order key, and what follows a row that was not confirmed stays.

use std::collections::{HashMap, HashSet};

use oncebox_core::outbox::Unsent;

/// What must not be overtaken.
type Order<'r> = (&'r str, &'r str);

fn order(row: &Unsent) -> Option<Order<'_>> {
    row.outgoing.message.order_key.as_deref().map(|key| (row.outgoing.topic.as_str(), key))
}

/// The places of a batch, split into rounds.
pub(super) fn rounds(batch: &[Unsent], by_prefix: bool) -> Vec<Vec<usize>> {
    if batch.is_empty() {
        return Vec::new();
    }
    if by_prefix {
        return vec![(0..batch.len()).collect()];
    }
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut next: HashMap<Order<'_>, usize> = HashMap::new();
    for (place, row) in batch.iter().enumerate() {
        let round = order(row).map_or(0, |order| {
            let next = next.entry(order).or_default();
            *next += 1;
            *next - 1
        });
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        rounds[round].push(place);
    }
    rounds
}

/// What stays because something before it was not confirmed.
#[derive(Default)]
pub(super) struct HeldUp<'r> {
    orders: HashSet<Order<'r>>,
    topics: HashSet<&'r str>,
}

impl<'r> HeldUp<'r> {
    pub(super) fn by(&mut self, row: &'r Unsent) {
        self.orders.extend(order(row));
    }

    /// Nothing more to this topic in this batch.
    pub(super) fn by_topic(&mut self, row: &'r Unsent) {
        self.topics.insert(&row.outgoing.topic);
    }

    pub(super) fn holds(&self, row: &Unsent) -> bool {
        self.topics.contains(row.outgoing.topic.as_str())
            || order(row).is_some_and(|order| self.orders.contains(&order))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oncebox_core::outbox::SentReceipt;
    use oncebox_core::queue::HeldLane;
    use oncebox_core::source::LaneNumber;
    use oncebox_core::{Message, Outgoing};

    use super::*;

    fn batch(rows: &[(&str, Option<&str>)]) -> Vec<Unsent> {
        let lane = HeldLane { lane: LaneNumber(0), epoch: 1 };
        let row = |(place, (topic, key)): (usize, &(&str, Option<&str>))| {
            let mut message = Message::new("t");
            message.order_key = key.map(str::to_owned);
            let outgoing = Outgoing { topic: (*topic).to_owned(), message: Arc::new(message) };
            Unsent { receipt: SentReceipt { row: place as i64, lane }, outgoing }
        };
        rows.iter().enumerate().map(row).collect()
    }

    #[test]
    fn one_row_of_each_order_is_under_way_at_a_time() {
        let batch = batch(&[
            ("a", Some("1")),
            ("a", None),
            ("a", Some("1")),
            ("b", Some("1")),
            ("a", Some("2")),
            ("a", Some("1")),
            ("a", None),
        ]);
        assert_eq!(rounds(&batch, false), [vec![0, 1, 3, 4, 6], vec![2], vec![5]]);
        assert_eq!(rounds(&batch, true), [vec![0, 1, 2, 3, 4, 5, 6]]);
        assert!(rounds(&[], false).is_empty());
    }

    #[test]
    fn what_follows_a_failure_of_its_order_stays() {
        let batch = batch(&[("a", Some("1")), ("a", Some("1")), ("b", Some("1")), ("a", None)]);
        let mut held = HeldUp::default();
        held.by(&batch[0]);
        assert_eq!(batch.iter().map(|row| held.holds(row)).collect::<Vec<_>>(), [true, true, false, false]);
        held.by_topic(&batch[0]);
        assert_eq!(batch.iter().map(|row| held.holds(row)).collect::<Vec<_>>(), [true, true, false, true]);
    }
}
