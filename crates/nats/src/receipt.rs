//! One delivery in hand.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_nats::Subject;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// One delivery of one message.
///
/// JetStream does not fence: an acknowledgement, a release or an extension of a delivery whose time is over works on
/// the *next* delivery of the message, which somebody else has in hand. So each receipt knows until when it is ours, and
/// what comes later than that is not sent.
pub struct JetStreamReceipt {
    /// Where the server wants to hear of it.
    pub(crate) reply: Subject,
    ours: Mutex<Ours>,
    room: Arc<Room>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ours {
    Until(Instant),
    /// Acknowledged or given back.
    NoLonger,
}

impl JetStreamReceipt {
    pub(crate) fn new(reply: Subject, until: Instant, room: Arc<Room>) -> Self {
        Self { reply, ours: Mutex::new(Ours::Until(until)), room }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(*self.ours(), Ours::Until(until) if Instant::now() < until)
    }

    /// Ends it, and says whether it was ours until now. From here on it is not extended.
    pub(crate) fn end(&self) -> bool {
        let mut ours = self.ours();
        let was = std::mem::replace(&mut *ours, Ours::NoLonger);
        self.room.freed.notify_one();
        matches!(was, Ours::Until(until) if Instant::now() < until)
    }

    /// The server has confirmed an extension that was asked for no earlier than what `until` was counted from.
    pub(crate) fn extended(&self, until: Instant) {
        let mut ours = self.ours();
        if let Ours::Until(before) = *ours {
            *ours = Ours::Until(before.max(until));
        }
    }

    fn ours(&self) -> MutexGuard<'_, Ours> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JetStreamReceipt {
    fn drop(&mut self) {
        self.room.freed.notify_one();
    }
}

impl fmt::Debug for JetStreamReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamReceipt").field("is_ours", &self.is_ours()).finish_non_exhaustive()
    }
}

/// How many more deliveries the consumer's `max_ack_pending` leaves to this process. Asking for more makes the server sit
/// on the request, and what it sent already ages meanwhile.
#[derive(Debug)]
pub(crate) struct Room {
    max: usize,
    /// What was received. Those that are settled, dropped or whose time is over take no room.
    held: Mutex<Vec<Weak<JetStreamReceipt>>>,
    freed: Notify,
}

/// How often to look for deliveries whose time is over, which nothing announces.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Room {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, held: Mutex::default(), freed: Notify::new() }
    }

    pub(crate) fn take(&self, receipt: &Arc<JetStreamReceipt>) {
        if self.max != usize::MAX {
            self.held().push(Arc::downgrade(receipt));
        }
    }

    /// Up to `wanted`, waiting for something to be settled if there is none; 0 if that lasts until `deadline`.
    pub(crate) async fn wait(&self, wanted: usize, deadline: Instant) -> usize {
        loop {
            let room = self.left().min(wanted);
            if room > 0 || Instant::now() >= deadline {
                return room;
            }
            let look = deadline.min(Instant::now() + LOOK_EVERY);
            let _ = timeout_at(look, self.freed.notified()).await;
        }
    }

    fn left(&self) -> usize {
        // A receipt that is dropped while the list is locked is dropped after it is unlocked.
        let mut dropped = Vec::new();
        let mut held = self.held();
        held.retain(|receipt| match receipt.upgrade() {
            Some(receipt) => {
                let is_ours = receipt.is_ours();
                dropped.push(receipt);
                is_ours
            }
            None => false,
        });
        self.max.saturating_sub(held.len())
    }

    fn held(&self) -> MutexGuard<'_, Vec<Weak<JetStreamReceipt>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A little earlier than the server thinks, for the time that a message and an answer are on their way.
pub(crate) fn lease_end(from: Instant, lease: Duration) -> Instant {
    from + (lease - lease / 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn receipt(room: &Arc<Room>) -> Arc<JetStreamReceipt> {
        let receipt = Arc::new(JetStreamReceipt::new("reply".into(), Instant::now() + LEASE, Arc::clone(room)));
        room.take(&receipt);
        receipt
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_ours_until_its_time_is_over() {
        let room = Arc::new(Room::new(1));
        let receipt = receipt(&room);
        tokio::time::advance(LEASE / 2).await;
        assert!(receipt.is_ours());
        receipt.extended(Instant::now() + LEASE);
        tokio::time::advance(LEASE - Duration::from_millis(1)).await;
        assert!(receipt.is_ours());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!receipt.is_ours() && !receipt.end());
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_does_not_bring_back_what_was_ended() {
        let receipt = receipt(&Arc::new(Room::new(1)));
        assert!(receipt.end());
        receipt.extended(Instant::now() + LEASE);
        assert!(!receipt.is_ours() && !receipt.end());
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_what_is_not_in_hand() {
        let room = Arc::new(Room::new(2));
        let first = receipt(&room);
        assert_eq!(room.wait(10, Instant::now()).await, 1);
        let second = receipt(&room);
        assert_eq!(room.wait(10, Instant::now() + LEASE / 2).await, 0);
        drop(first);
        assert_eq!(room.wait(10, Instant::now()).await, 1);
        second.end();
        assert_eq!(room.wait(1, Instant::now()).await, 1);
        assert_eq!(room.wait(10, Instant::now()).await, 2);
        // Nobody settles them; when their time is over they are the server's again.
        let _lost = [receipt(&room), receipt(&room)];
        assert_eq!(room.wait(10, Instant::now() + 2 * LEASE).await, 2);
    }
}
