//! What is in hand, by partition: which messages wait to be handed out, which are out, and up to where all is done.
//!
//! ```text
//!  fetched ──▶ waiting ──take──▶ out ──finish──▶ gone
//!                 ▲               │
//!                 └───release─────┘ (due later, in offset order; those behind it wait)
//! ```
//!
//! The mark of a partition is the offset to commit: that of its first message that is not gone, or the one after the last
//! that was fetched. Offsets have holes (compaction, transactions), so nothing is counted. Each assignment of a partition
//! is a new epoch; what was handed out under an older one settles nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncebox_core::{Message, Timestamp, planted};
use tokio::time::Instant;

/// One hand-out of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KafkaReceipt {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) epoch: u64,
    /// How often this assignment handed it out, this time included.
    pub(super) hand: u32,
    /// Where the partition is when everything before this record is done.
    pub(super) from: i64,
    /// What the record looks like, to know its log again.
    pub(super) witness: i64,
    /// The epoch of its partition in the store, where offsets are kept there.
    pub(super) held: i64,
    /// An owner of the partition before us may have had it in hand when it died.
    pub(super) is_uncounted: bool,
}

/// Where a partition begins, if the store says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) partition: i32,
    /// The next record to read.
    pub(super) next: i64,
    /// The epoch of the partition in the store.
    pub(super) held: i64,
    /// What the record before `next` looks like. It is read first, and if it looks otherwise, this is another log.
    pub(super) witness: Option<i64>,
}

impl Begin {
    /// The first record to read.
    pub(super) fn reads_from(&self) -> i64 {
        self.next - i64::from(self.witness.is_some())
    }
}

/// Records after the mark, when a partition is assigned, that an owner before us may have had in hand. Consumers have fewer in
/// hand unless they are told otherwise. An owner that could not move the mark, because one record was held back, may have come
/// much further; so as long as we do not move it either, whatever comes may have come before.
const FIRST_WINDOW: usize = 2_000;

/// A partition whose records are not those that were read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnotherLog;

/// The partitions that are assigned to us.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    assigned: BTreeMap<i32, Partition>,
    epochs: u64,
    /// Where the last hand-out ended; the next begins after it, so that no partition starves.
    turn: i32,
}

#[derive(Debug, Default)]
struct Partition {
    epoch: u64,
    waiting: BTreeMap<i64, Waiting>,
    waiting_bytes: usize,
    out: BTreeMap<i64, Out>,
    /// The offset after the last that was fetched.
    next: Option<i64>,
    /// The mark that the broker was told last.
    told: Option<i64>,
    /// Being taken away: nothing of it is handed out any more.
    is_leaving: bool,
    /// The epoch in the store.
    held: i64,
    /// The offset and look of a record that was read before.
    known: Option<(i64, i64)>,
    /// How many records came, up to the first window.
    came: usize,
    /// Where it was when it was assigned.
    began: Option<i64>,
    /// The mark moved since, and whoever owns the partition after us begins there.
    has_moved: bool,
}

#[derive(Debug)]
struct Waiting {
    record: Record,
    /// Not before this; `None`: at once.
    due: Option<Instant>,
    hands: u32,
}

#[derive(Debug)]
struct Out {
    record: Record,
    hand: u32,
}

/// A record, and what ties it to the one before.
#[derive(Debug)]
struct Record {
    message: Arc<Message>,
    from: i64,
    witness: i64,
    /// When it was stored, as far as the brokers tell.
    stored: Option<Timestamp>,
    is_uncounted: bool,
}

/// A bound on what waits in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Partitions {
    /// Partitions became ours, each under a new epoch.
    pub(super) fn assign(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.epochs += 1;
            self.assigned.insert(*partition, Partition { epoch: self.epochs, ..Partition::default() });
        }
    }

    /// The store says where these begin, which were just assigned.
    pub(super) fn begin(&mut self, begins: &[Begin]) {
        for begin in begins {
            if let Some(partition) = self.assigned.get_mut(&begin.partition) {
                partition.next = Some(begin.next);
                partition.began = Some(begin.next);
                partition.held = begin.held;
                partition.known = begin.witness.map(|witness| (begin.next - 1, witness));
            }
        }
    }

    /// A partition has a new owner, as the store knows. Whether we still took it for ours.
    pub(super) fn lose(&mut self, receipt: &KafkaReceipt) -> bool {
        let is_ours = self.assigned.get(&receipt.partition).is_some_and(|now| now.epoch == receipt.epoch);
        if is_ours {
            self.revoke(&[receipt.partition]);
        }
        is_ours
    }

    /// Partitions will be taken from us.
    pub(super) fn leave(&mut self, partitions: &[i32]) {
        for partition in partitions {
            if let Some(partition) = self.assigned.get_mut(partition) {
                partition.is_leaving = true;
            }
        }
    }

    /// Partitions are no longer ours.
    pub(super) fn revoke(&mut self, partitions: &[i32]) {
        self.assigned.retain(|partition, _| !partitions.contains(partition));
    }

    pub(super) fn numbers(&self) -> Vec<i32> {
        self.assigned.keys().copied().collect()
    }

    /// How many messages of these partitions are out.
    pub(super) fn out(&self, partitions: &[i32]) -> usize {
        partitions
            .iter()
            .filter_map(|partition| self.assigned.get(partition))
            .map(|partition| partition.out.len())
            .sum()
    }

    /// Takes in a record. One of a partition that is not ours, or that we have already, is dropped.
    pub(super) fn insert(
        &mut self,
        number: i32,
        offset: i64,
        message: Arc<Message>,
        witness: i64,
        stored: Option<Timestamp>,
    ) -> Result<(), AnotherLog> {
        let Some(partition) = self.assigned.get_mut(&number) else { return Ok(()) };
        // Not there any more if the log was compacted: then nothing is known either way.
        if let Some((at, looks)) = partition.known.take()
            && at == offset
            && looks != witness
            && !planted::is("offset-of-another-log")
        {
            return Err(AnotherLog);
        }
        if partition.next.is_some_and(|next| offset < next) {
            return Ok(());
        }
        let from = partition.next.replace(offset + 1).unwrap_or(offset);
        partition.began.get_or_insert(from);
        let is_uncounted = partition.came < FIRST_WINDOW;
        partition.came += usize::from(is_uncounted);
        let record = Record { message, from, witness, stored, is_uncounted };
        partition.wait(offset, Waiting { record, due: None, hands: 0 });
        Ok(())
    }

    /// Whether a partition holds as much as it may.
    pub(super) fn is_full(&self, partition: i32, room: Room) -> bool {
        self.assigned
            .get(&partition)
            .is_some_and(|partition| partition.waiting.len() >= room.messages || partition.waiting_bytes >= room.bytes)
    }

    /// Hands out up to `max`, in offset order within each partition.
    pub(super) fn take(&mut self, max: usize, now: Instant) -> Vec<(KafkaReceipt, Arc<Message>)> {
        let mut taken = Vec::new();
        let after = self.turn.saturating_add(1);
        let order: Vec<i32> =
            self.assigned.range(after..).chain(self.assigned.range(..after)).map(|(number, _)| *number).collect();
        for number in order {
            let Some(partition) = self.assigned.get_mut(&number).filter(|partition| !partition.is_leaving) else {
                continue;
            };
            while taken.len() < max
                && let Some(first) = partition.waiting.first_entry()
                // One that is not due holds up those behind it.
                && first.get().due.is_none_or(|due| due <= now)
            {
                let (offset, Waiting { record, hands, .. }) = first.remove_entry();
                partition.waiting_bytes -= record.message.payload.len();
                let hand = hands + 1;
                let Partition { epoch, held, has_moved, .. } = *partition;
                let Record { from, witness, .. } = record;
                let is_uncounted = record.is_uncounted || !has_moved;
                let receipt =
                    KafkaReceipt { partition: number, offset, epoch, hand, from, witness, held, is_uncounted };
                taken.push((receipt, Arc::clone(&record.message)));
                partition.out.insert(offset, Out { record, hand });
                self.turn = number;
            }
        }
        taken
    }

    /// When the next message that waits for its time is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let heads = self.assigned.values().filter_map(|partition| partition.waiting.first_key_value());
        heads.filter_map(|(_, waiting)| waiting.due).min()
    }

    /// A message is done. `false` if it is not ours any more.
    pub(super) fn finish(&mut self, receipt: &KafkaReceipt) -> bool {
        let Some((partition, _)) = self.end(receipt) else { return false };
        // What is kept in the store is there by now; a broker has to be told first.
        if partition.is_in_store() {
            partition.note_mark(partition.mark());
        }
        true
    }

    /// A message is not done: it waits again until `due`. `false` if it is not ours any more.
    pub(super) fn release(&mut self, receipt: &KafkaReceipt, due: Option<Instant>) -> bool {
        let Some((partition, Out { record, hand })) = self.end(receipt) else { return false };
        partition.wait(receipt.offset, Waiting { record, due, hands: hand });
        true
    }

    /// Takes what is out under this very receipt.
    fn end(&mut self, receipt: &KafkaReceipt) -> Option<(&mut Partition, Out)> {
        let partition = self.assigned.get_mut(&receipt.partition).filter(|now| now.epoch == receipt.epoch)?;
        partition.out.get(&receipt.offset).filter(|out| out.hand == receipt.hand)?;
        let out = partition.out.remove(&receipt.offset)?;
        Some((partition, out))
    }

    /// Where each partition is; `None` before it is known where it begins.
    pub(super) fn marks(&self) -> Vec<(i32, Option<i64>)> {
        self.assigned.iter().map(|(number, partition)| (*number, partition.mark())).collect()
    }

    /// When the oldest was stored that was fetched and is not done.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.assigned.values().filter_map(Partition::oldest).min()
    }

    /// The marks that moved since the broker was told, which it is being told now.
    pub(super) fn tell_marks(&mut self) -> Vec<(i32, i64)> {
        let mut marks = Vec::new();
        for (number, partition) in &mut self.assigned {
            let mark = partition.mark();
            if mark.is_some() && mark != partition.told {
                partition.told = mark;
                partition.note_mark(mark);
                marks.extend(mark.map(|mark| (*number, mark)));
            }
        }
        marks
    }

    /// The broker did not hear what it was told.
    pub(super) fn tell_again(&mut self) {
        self.assigned.values_mut().for_each(|partition| partition.told = None);
    }
}

impl Partition {
    fn wait(&mut self, offset: i64, waiting: Waiting) {
        self.waiting_bytes += waiting.record.message.payload.len();
        self.waiting.insert(offset, waiting);
    }

    /// The time of the record at the mark.
    fn oldest(&self) -> Option<Timestamp> {
        let waiting = self.waiting.first_key_value().map(|(offset, waiting)| (*offset, &waiting.record));
        let out = self.out.first_key_value().map(|(offset, out)| (*offset, &out.record));
        waiting.into_iter().chain(out).min_by_key(|(offset, _)| *offset).and_then(|(_, record)| record.stored)
    }

    /// Whether its offset is kept in the store, which counts epochs from one.
    fn is_in_store(&self) -> bool {
        self.held != 0
    }

    /// The next owner of the partition begins at `mark`.
    fn note_mark(&mut self, mark: Option<i64>) {
        self.has_moved |= mark > self.began;
    }

    fn mark(&self) -> Option<i64> {
        let first = |offset: Option<i64>| offset.unwrap_or(i64::MAX);
        let waiting = first(self.waiting.first_key_value().map(|(offset, _)| *offset));
        let out = first(self.out.first_key_value().map(|(offset, _)| *offset));
        let out = if planted::is("kafka-offset-past-unfinished") { i64::MAX } else { out };
        self.next.map(|next| next.min(waiting).min(out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn note(partitions: &mut Partitions, number: i32, offset: i64) {
        partitions.insert(number, offset, Arc::new(Message::new("noted")), 0, None).unwrap();
    }

    fn fetched(offsets: impl IntoIterator<Item = i64>) -> Partitions {
        let mut partitions = Partitions::default();
        partitions.assign(&[0]);
        offsets.into_iter().for_each(|offset| note(&mut partitions, 0, offset));
        partitions
    }

    fn offsets(taken: &[(KafkaReceipt, Arc<Message>)]) -> Vec<i64> {
        taken.iter().map(|(receipt, _)| receipt.offset).collect()
    }

    #[test]
    fn the_mark_is_the_first_that_is_not_done_whatever_was_done_after_it() {
        let mut partitions = fetched([5, 6, 9]);
        assert_eq!(partitions.tell_marks(), [(0, 5)]);
        let taken = partitions.take(9, Instant::now());
        assert!(partitions.finish(&taken[2].0) && partitions.finish(&taken[1].0));
        assert_eq!(partitions.tell_marks(), []);
        assert!(partitions.finish(&taken[0].0));
        assert_eq!(partitions.tell_marks(), [(0, 10)]);
        partitions.tell_again();
        assert_eq!(partitions.tell_marks(), [(0, 10)]);
    }

    #[test]
    fn the_oldest_is_the_record_at_the_mark() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0]);
        assert_eq!(partitions.oldest(), None);
        let at = |second| Timestamp::from_second(second).unwrap();
        for (offset, second) in [(5, 100), (6, 90), (7, 110)] {
            partitions.insert(0, offset, Arc::new(Message::new("noted")), 0, Some(at(second))).unwrap();
        }
        let taken = partitions.take(2, Instant::now());
        assert_eq!(partitions.oldest(), Some(at(100)), "it is out");
        assert!(partitions.finish(&taken[0].0));
        assert_eq!(partitions.oldest(), Some(at(90)));
        assert!(partitions.finish(&taken[1].0));
        assert_eq!(partitions.oldest(), Some(at(110)), "it waits");
    }

    #[test]
    fn what_was_handed_out_before_settles_nothing() {
        let mut partitions = fetched([5]);
        let first = partitions.take(9, Instant::now())[0].0;
        assert!(partitions.release(&first, None));
        let second = partitions.take(9, Instant::now())[0].0;
        assert!(!partitions.finish(&first) && !partitions.release(&first, None));
        assert!(partitions.finish(&second));
    }

    #[test]
    fn what_an_older_assignment_handed_out_settles_nothing() {
        let mut partitions = fetched([5]);
        let old = partitions.take(9, Instant::now())[0].0;
        partitions.revoke(&[0]);
        assert!(!partitions.finish(&old));
        partitions.assign(&[0]);
        note(&mut partitions, 0, 5);
        let new = partitions.take(9, Instant::now())[0].0;
        assert_eq!((old.offset, old.hand), (new.offset, new.hand));
        assert!(!partitions.finish(&old) && !partitions.release(&old, None));
        assert_eq!(partitions.tell_marks(), [(0, 5)]);
        assert!(partitions.finish(&new));
    }

    #[test]
    fn one_that_is_not_due_holds_up_its_partition_and_no_other() {
        let mut partitions = fetched([1, 2, 3]);
        partitions.assign(&[1]);
        note(&mut partitions, 1, 7);
        let due = Instant::now() + Duration::from_secs(1);
        let first: Vec<_> = partitions.take(9, Instant::now()).into_iter().map(|(receipt, _)| receipt).collect();
        let [seven, one, two, _] = first[..] else { panic!("{first:?}") };
        assert_eq!((seven.offset, one.offset, two.offset), (7, 1, 2));
        assert!(
            partitions.release(&two, None) && partitions.release(&one, Some(due)) && partitions.release(&seven, None)
        );
        assert_eq!(partitions.next_due(), Some(due));
        assert_eq!(offsets(&partitions.take(9, Instant::now())), [7]);
        let again = partitions.take(9, due);
        assert_eq!(offsets(&again), [1, 2]);
        assert_eq!(again[0].0.hand, 2);
    }

    #[test]
    fn what_is_leaving_is_not_handed_out_and_keeps_its_mark() {
        let mut partitions = fetched([1, 2]);
        let one = partitions.take(1, Instant::now())[0].0;
        partitions.leave(&[0]);
        assert!(partitions.take(9, Instant::now()).is_empty());
        assert_eq!(partitions.out(&[0]), 1);
        assert!(partitions.finish(&one));
        assert_eq!((partitions.out(&[0]), partitions.tell_marks()), (0, vec![(0, 2)]));
    }

    #[test]
    fn only_the_first_window_of_an_assignment_may_have_come_before() {
        let mut partitions = fetched(0..FIRST_WINDOW as i64 + 2);
        let first = partitions.take(1, Instant::now())[0].0;
        assert!(first.is_uncounted && partitions.finish(&first));
        assert_eq!(partitions.tell_marks(), [(0, 1)]);
        let taken = partitions.take(FIRST_WINDOW + 1, Instant::now());
        let uncounted = |taken: &[(KafkaReceipt, Arc<Message>)]| taken.iter().filter(|(r, _)| r.is_uncounted).count();
        assert_eq!((uncounted(&taken), taken[FIRST_WINDOW - 1].0.is_uncounted), (FIRST_WINDOW - 1, false));
        assert!(partitions.release(&taken[0].0, None));
        assert!(partitions.take(1, Instant::now())[0].0.is_uncounted, "it is the same record");
        partitions.assign(&[0]);
        note(&mut partitions, 0, 5);
        assert_eq!(uncounted(&partitions.take(1, Instant::now())), 1);
    }

    #[test]
    fn while_the_mark_does_not_move_whatever_comes_may_have_come_before() {
        let mut partitions = fetched(0..FIRST_WINDOW as i64 + 9);
        let head = partitions.take(1, Instant::now())[0].0;
        for (receipt, _) in partitions.take(FIRST_WINDOW + 2, Instant::now()) {
            assert!(receipt.is_uncounted, "{receipt:?}");
            assert!(partitions.finish(&receipt));
        }
        assert_eq!(partitions.tell_marks(), [(0, 0)]);
        assert!(partitions.take(1, Instant::now())[0].0.is_uncounted, "whoever owned it before may have come so far");
        assert!(partitions.finish(&head));
        assert!(partitions.take(1, Instant::now())[0].0.is_uncounted, "the broker does not know of it yet");
        partitions.tell_marks();
        partitions.tell_again();
        assert!(!partitions.take(1, Instant::now())[0].0.is_uncounted);
    }

    #[test]
    fn an_offset_in_the_store_has_moved_with_the_first_that_is_done() {
        let mut partitions = Partitions::default();
        partitions.assign(&[0]);
        partitions.begin(&[Begin { partition: 0, next: 7, held: 1, witness: None }]);
        (7..FIRST_WINDOW as i64 + 9).for_each(|offset| note(&mut partitions, 0, offset));
        let mut taken = partitions.take(FIRST_WINDOW, Instant::now()).into_iter().map(|(receipt, _)| receipt);
        let first = taken.next().unwrap();
        assert!(taken.all(|receipt| receipt.is_uncounted));
        assert!(partitions.finish(&first));
        assert!(!partitions.take(1, Instant::now())[0].0.is_uncounted);
    }

    #[test]
    fn no_partition_starves() {
        let mut partitions = fetched(0..10);
        partitions.assign(&[1]);
        (0..10).for_each(|offset| note(&mut partitions, 1, offset));
        let numbers: Vec<i32> = (0..4).map(|_| partitions.take(2, Instant::now())[0].0.partition).collect();
        assert_eq!(numbers, [1, 0, 1, 0]);
    }

    #[test]
    fn room_is_bounded_in_messages_and_bytes() {
        let mut partitions = fetched([1, 2]);
        assert!(partitions.is_full(0, Room { messages: 2, bytes: 100 }));
        assert!(!partitions.is_full(0, Room { messages: 3, bytes: 100 }));
        partitions.insert(0, 3, Arc::new(Message::new("noted").with_payload(vec![0; 100])), 0, None).unwrap();
        assert!(partitions.is_full(0, Room { messages: 9, bytes: 100 }));
    }

    fn begun(begin: Begin) -> Partitions {
        let mut partitions = Partitions::default();
        partitions.assign(&[0]);
        partitions.begin(&[begin]);
        partitions
    }

    #[test]
    fn each_record_says_what_it_follows() {
        let mut partitions = begun(Begin { partition: 0, next: 5, held: 3, witness: None });
        for offset in [6, 7, 9] {
            note(&mut partitions, 0, offset);
        }
        let taken = partitions.take(9, Instant::now());
        let steps: Vec<_> = taken.iter().map(|(receipt, _)| (receipt.from, receipt.offset, receipt.held)).collect();
        assert_eq!(steps, [(5, 6, 3), (7, 7, 3), (8, 9, 3)], "offsets have holes, steps have none");
        assert!(partitions.release(&taken[1].0, None));
        assert_eq!(partitions.take(9, Instant::now())[0].0.from, 7);
    }

    #[test]
    fn a_log_is_known_again_by_the_record_before() {
        let begin = Begin { partition: 0, next: 5, held: 3, witness: Some(77) };
        assert_eq!(begin.reads_from(), 4);
        let insert = |partitions: &mut Partitions, offset, witness| {
            partitions.insert(0, offset, Arc::new(Message::new("noted")), witness, None)
        };
        let mut same = begun(begin);
        assert_eq!((insert(&mut same, 4, 77), insert(&mut same, 5, 78)), (Ok(()), Ok(())));
        assert_eq!(offsets(&same.take(9, Instant::now())), [5], "what was done is not handed out");
        let mut compacted = begun(begin);
        assert_eq!(insert(&mut compacted, 6, 78), Ok(()));
        assert_eq!(compacted.take(9, Instant::now())[0].0.from, 5);
        assert_eq!(insert(&mut begun(begin), 4, 78), Err(AnotherLog));
    }

    #[test]
    fn what_the_store_gave_to_another_is_not_ours() {
        let mut partitions = fetched([1, 2]);
        let one = partitions.take(1, Instant::now())[0].0;
        assert!(partitions.lose(&one) && !partitions.lose(&one));
        assert!(!partitions.finish(&one) && partitions.take(9, Instant::now()).is_empty());
        assert_eq!(partitions.tell_marks(), []);
    }
}
