//! The business: one row for each message that took effect.

use std::sync::Arc;

use oncebox::memory::MemoryStore;
use oncebox::{Context, Failure, Outcome, Outcomes, StoreError, StoreErrorKind};
use oncebox_testkit::faults::Faulty;
use serde::{Deserialize, Serialize};

use crate::history::{Ends, Order};
use crate::journal::Journal;
use crate::weather::{Trouble, Weather};

/// The store that consumers see.
pub(crate) type Base = Faulty<MemoryStore>;

/// The table of effects, in the order they were committed.
pub(crate) const EFFECTS: &str = "effects";

/// A row of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Effect {
    pub(crate) order: Order,
    /// The handler call that wrote it.
    pub(crate) run: u64,
}

/// The handler of one process.
#[derive(Clone, Debug)]
pub(crate) struct Business {
    pub(crate) process: u64,
    pub(crate) journal: Arc<Journal>,
    pub(crate) weather: Arc<Weather>,
    /// Whether the source fences: only whoever was handed a message last may commit it.
    pub(crate) fenced: bool,
}

impl Business {
    /// Handles one message.
    pub(crate) async fn one(self, mut ctx: Context<Base>, order: Order) -> oncebox::Result<Outcome> {
        self.apply(&mut ctx, &order).await
    }

    /// Handles many.
    pub(crate) async fn many(self, mut ctx: Context<Base>, orders: Vec<Order>) -> oncebox::Result<Outcomes> {
        let mut outcomes = Vec::with_capacity(orders.len());
        for order in &orders {
            outcomes.push(self.apply(&mut ctx, order).await?);
        }
        Ok(Outcomes::Each(outcomes))
    }

    async fn apply(&self, ctx: &mut Context<Base>, order: &Order) -> oncebox::Result<Outcome> {
        let takes = self.weather.handler_takes();
        if !takes.is_zero() {
            self.journal.note(format_args!("process {} is slow with {}: {takes:?}", self.process, order.id));
            tokio::time::sleep(takes).await;
        }
        let run = self.journal.handled(self.process, &order.id, self.fenced);
        ctx.db().append(EFFECTS, &Effect { order: order.clone(), run })?;
        let journal = Arc::clone(&self.journal);
        ctx.after_commit(async move { journal.hooked(run) });
        // After the write, so that what is rolled back would be seen.
        if let Some(trouble) = self.weather.handler_trouble() {
            self.journal.note(format_args!("process {} fails with {}: {trouble:?}", self.process, order.id));
            return Err(failure(trouble));
        }
        match order.ends {
            Ends::Applied => Ok(Outcome::applied()),
            Ends::WithResult => Outcome::applied().with_json(&order.id),
            Ends::Rejected => Ok(Outcome::rejected(order.id.clone())),
        }
    }
}

fn failure(trouble: Trouble) -> Failure {
    let error = |kind| StoreError::new(kind, "handle", "the seed says so").into();
    match trouble {
        Trouble::Fails => Failure::transient("the seed says so"),
        Trouble::Contended => error(StoreErrorKind::Contended),
        Trouble::StoreAway => error(StoreErrorKind::Unavailable),
    }
}
