//! The messages of a demo: what is sent, how often, in which order.

use std::collections::HashMap;

use oncebox::{Message, MessageId, StoreError};
use serde::{Deserialize, Serialize};

use super::shop::Shop;

/// What a message says.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Payment {
    pub(super) payment: String,
    pub(super) account: i64,
    pub(super) amount: i64,
}

/// All messages, and every copy of them in the order they are sent.
pub(super) struct Feed {
    payments: Vec<Payment>,
    /// Places in `payments`: each at least once, shuffled within a window.
    sequence: Vec<usize>,
}

/// How far a copy may stray from its place.
const WINDOW: usize = 400;

/// Rows in one transaction of the sender.
const CHUNK: usize = 500;

impl Feed {
    pub(super) fn new(messages: u32, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let payments: Vec<Payment> = (0..messages)
            .map(|number| Payment {
                payment: format!("payment-{seed:x}-{number}"),
                account: random.i64(0..200),
                amount: random.i64(1..1_000),
            })
            .collect();
        // One to three copies of each, like a producer that retries.
        let mut sequence: Vec<usize> =
            (0..payments.len()).flat_map(|place| std::iter::repeat_n(place, random.usize(1..=3))).collect();
        for window in sequence.chunks_mut(WINDOW) {
            random.shuffle(window);
        }
        Self { payments, sequence }
    }

    /// Puts every copy into the queue.
    pub(super) async fn send(&self, shop: &Shop) -> Result<(), StoreError> {
        for chunk in self.sequence.chunks(CHUNK) {
            shop.send(chunk.iter().map(|&place| self.payments[place].message()).collect()).await?;
        }
        Ok(())
    }

    /// What the business table should hold: each payment once, with its amount.
    pub(super) fn expected(&self) -> HashMap<&str, i64> {
        self.payments.iter().map(|payment| (payment.payment.as_str(), payment.amount)).collect()
    }
}

impl Payment {
    fn message(&self) -> Message {
        let message = Message::new("payment.received").with_payload(serde_json::to_vec(self).unwrap_or_default());
        match MessageId::new(self.payment.clone()) {
            Ok(id) => message.with_id(id),
            Err(_) => message,
        }
    }
}
