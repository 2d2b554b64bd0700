//! A broker with partitions, each of which has one owner at a time. Whoever owned one before is not asked and not told:
//! it goes on with what it has in hand, and what it says about that is not heard any more.

use std::collections::{BTreeMap, HashSet};

/// Who reads: a process, by its number.
pub type Owner = u64;

/// Messages in partitions, in the order in which they were sent.
#[derive(Debug)]
pub struct Partitions<T> {
    partitions: Vec<Partition<T>>,
    /// Who takes part.
    members: Vec<Owner>,
}

#[derive(Debug)]
struct Partition<T> {
    owner: Option<Owner>,
    /// Raised with each change of hands.
    epoch: u64,
    slots: BTreeMap<u64, Slot<T>>,
    next: u64,
}

#[derive(Debug)]
struct Slot<T> {
    message: T,
    key: Option<String>,
    deliveries: u32,
    /// In hand under this epoch.
    held: Option<u64>,
    /// By the caller's own clock, from when it can be delivered.
    visible_at: u64,
}

/// One delivery of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The partition.
    pub partition: usize,
    /// Its place there.
    pub place: u64,
    /// Under which ownership it was delivered.
    pub epoch: u64,
    /// How often it was delivered, this time included.
    pub count: u32,
}

impl<T: Clone> Partitions<T> {
    /// Empty partitions.
    pub fn new(partitions: usize) -> Self {
        let empty = || Partition { owner: None, epoch: 0, slots: BTreeMap::new(), next: 0 };
        Self { partitions: (0..partitions).map(|_| empty()).collect(), members: Vec::new() }
    }

    /// The partition of an order key.
    pub fn of(&self, key: &str) -> usize {
        let hash = key.bytes().fold(7_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        hash % self.partitions.len()
    }

    /// Adds a message. One order key is one partition.
    pub fn send(&mut self, message: T, key: Option<String>) {
        let sent: usize = self.partitions.iter().map(|partition| partition.next as usize).sum();
        let at = key.as_deref().map_or(sent % self.partitions.len(), |key| self.of(key));
        let partition = &mut self.partitions[at];
        let slot = Slot { message, key, deliveries: 0, held: None, visible_at: 0 };
        partition.slots.insert(partition.next, slot);
        partition.next += 1;
    }

    /// One more reader: it gets its share of the partitions.
    pub fn join(&mut self, owner: Owner) {
        self.members.push(owner);
        self.share();
    }

    /// One reader less: what it had is somebody else's.
    pub fn leave(&mut self, owner: Owner) {
        self.members.retain(|member| *member != owner);
        self.share();
    }

    fn share(&mut self) {
        for at in 0..self.partitions.len() {
            let owner = (!self.members.is_empty()).then(|| self.members[at % self.members.len()]);
            self.give(at, owner);
        }
    }

    /// Gives a partition to another reader, if there is one, without a word to the old one.
    pub fn pass_on(&mut self, partition: usize, by: usize) {
        let at = partition % self.partitions.len();
        let owner = self.partitions[at].owner;
        let others: Vec<Owner> = self.members.iter().copied().filter(|member| Some(*member) != owner).collect();
        if !others.is_empty() {
            self.give(at, Some(others[by % others.len()]));
        }
    }

    fn give(&mut self, at: usize, owner: Option<Owner>) {
        let partition = &mut self.partitions[at];
        if partition.owner != owner {
            partition.owner = owner;
            partition.epoch += 1;
            for slot in partition.slots.values_mut() {
                slot.held = None;
            }
        }
    }

    /// Up to `max` messages of the reader's partitions. Nothing comes after a message of its key that is in hand or waits.
    pub fn receive(&mut self, owner: Owner, max: usize, now: u64) -> Vec<(Receipt, T)> {
        let mut taken = Vec::new();
        for (at, partition) in self.partitions.iter_mut().enumerate() {
            if partition.owner != Some(owner) {
                continue;
            }
            let mut blocked: HashSet<&str> = HashSet::new();
            for (&place, slot) in &mut partition.slots {
                let is_blocked = slot.key.as_deref().is_some_and(|key| blocked.contains(key));
                if slot.held.is_some() || slot.visible_at > now || is_blocked || taken.len() == max {
                    blocked.extend(slot.key.as_deref());
                    continue;
                }
                slot.deliveries += 1;
                slot.held = Some(partition.epoch);
                let receipt = Receipt { partition: at, place, epoch: partition.epoch, count: slot.deliveries };
                taken.push((receipt, slot.message.clone()));
            }
        }
        taken
    }

    /// A reader says that it is done. Not heard if the partition has changed hands since.
    pub fn ack(&mut self, receipt: &Receipt) -> bool {
        let partition = &mut self.partitions[receipt.partition];
        partition.epoch == receipt.epoch && partition.slots.remove(&receipt.place).is_some()
    }

    /// A reader gives it back. Not heard if the partition has changed hands since.
    pub fn release(&mut self, receipt: &Receipt, visible_at: u64) {
        let partition = &mut self.partitions[receipt.partition];
        if partition.epoch == receipt.epoch
            && let Some(slot) = partition.slots.get_mut(&receipt.place)
        {
            slot.held = None;
            slot.visible_at = visible_at;
        }
    }

    /// What is not done.
    pub fn left(&self) -> Vec<T> {
        let slots = self.partitions.iter().flat_map(|partition| partition.slots.values());
        slots.map(|slot| slot.message.clone()).collect()
    }

    /// How much of it somebody has in hand.
    pub fn held(&self) -> usize {
        let slots = self.partitions.iter().flat_map(|partition| partition.slots.values());
        slots.filter(|slot| slot.held.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_owner_keeps_what_it_has_and_is_not_heard() {
        let mut broker = Partitions::new(1);
        broker.join(1);
        broker.join(2);
        broker.send("a", Some("k".to_owned()));
        broker.send("b", Some("k".to_owned()));
        let old = broker.receive(1, 10, 0);
        assert_eq!(old.len(), 2);
        assert!(broker.receive(2, 10, 0).is_empty());
        broker.pass_on(0, 0);
        let new = broker.receive(2, 10, 0);
        assert_eq!(new.iter().map(|(_, message)| *message).collect::<Vec<_>>(), ["a", "b"]);
        assert!(!broker.ack(&old[0].0), "it is not its owner any more");
        assert!(broker.ack(&new[0].0));
        broker.release(&new[1].0, 5);
        assert!(broker.receive(2, 10, 4).is_empty() && broker.receive(2, 10, 5).len() == 1);
        broker.leave(2);
        assert_eq!((broker.left(), broker.held()), (vec!["b"], 0));
        assert_eq!(broker.receive(1, 10, 5).len(), 1, "whoever is left has it all");
    }
}
