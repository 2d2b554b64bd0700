//! The business: one row for each message that took effect.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use oncebox::memory::MemoryStore;
use oncebox::{Class, Context, Failure, Outcome, Outcomes, StoreError, StoreErrorKind};
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
        self.weather.may_panic("a handler at its beginning");
        let mut dropped = Dropped { weather: &self.weather, done: false };
        let takes = self.weather.handler_takes();
        if !takes.is_zero() {
            self.journal.note(format_args!("process {} is slow with {}: {takes:?}", self.process, order.id));
            tokio::time::sleep(takes).await;
        }
        let run = self.journal.handled(self.process, &order.id, self.fenced);
        ctx.db().append(EFFECTS, &Effect { order: order.clone(), run })?;
        let journal = Arc::clone(&self.journal);
        let weather = Arc::clone(&self.weather);
        ctx.after_commit(async move {
            journal.hooked(run);
            weather.may_panic("a hook of a handler");
        });
        dropped.done = true;
        self.weather.may_panic("a handler at its end");
        // After the write, so that what is rolled back would be seen.
        if let Some(trouble) = self.weather.handler_trouble().or_else(|| self.weather.odd_trouble()) {
            self.journal.note(format_args!("process {} fails with {}: {trouble:?}", self.process, order.id));
            return Err(failure(trouble, &self.weather));
        }
        match order.ends {
            Ends::Applied => Ok(Outcome::applied()),
            Ends::WithResult => Outcome::applied().with_json(&order.id),
            Ends::Rejected => Ok(Outcome::rejected(order.id.clone())),
        }
    }
}

/// What a handler holds while it waits. A handler past its deadline is dropped there, and this with it.
struct Dropped<'w> {
    weather: &'w Weather,
    done: bool,
}

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.done && !std::thread::panicking() {
            self.weather.may_well_panic("the drop of a handler");
        }
    }
}

/// An error of the user's own, whose class only they know.
#[derive(Debug)]
pub(crate) struct Upset {
    pub(crate) class: Class,
    weather: Arc<Weather>,
}

impl fmt::Display for Upset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the seed says so")
    }
}

impl Error for Upset {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.weather.may_well_panic("the source of an error");
        None
    }
}

fn failure(trouble: Trouble, weather: &Arc<Weather>) -> Failure {
    let error = |kind| StoreError::new(kind, "handle", "the seed says so").into();
    match trouble {
        Trouble::Fails => Failure::transient("the seed says so"),
        Trouble::Contended => error(StoreErrorKind::Contended),
        Trouble::StoreAway => error(StoreErrorKind::Unavailable),
        Trouble::Own(class) => Upset { class, weather: Arc::clone(weather) }.into(),
        Trouble::Foreign(kind) => error(kind),
    }
}
