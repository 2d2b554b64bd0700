//! Sends messages for as long as a row asks for more, and writes down what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::broker::Broker;
use crate::feed::{Feed, Order};
use crate::history::Writer;
use crate::place::Sender;

/// What the generator and the row tell each other.
#[derive(Default)]
pub(crate) struct Demand {
    /// Messages that wait, as the row last saw them.
    pub(crate) backlog: AtomicU64,
    /// Messages that were made so far.
    pub(crate) made: AtomicU64,
    /// No more.
    pub(crate) enough: AtomicBool,
}

/// Where messages go.
pub(crate) enum Outlet {
    Queue(Box<Sender>),
    Broker(Arc<Broker>),
}

/// Sends more when fewer than this many wait: enough for every worker to have its hands full.
const LOW_WATER: u64 = 250;

/// Messages that are made and sent at a time, at most.
const CHUNK: u64 = 50;

const PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn generate(
    mut feed: Feed,
    outlet: Outlet,
    mut history: Writer,
    demand: Arc<Demand>,
    messages_min: u64,
) -> anyhow::Result<()> {
    let size = messages_min.clamp(1, CHUNK) as usize;
    while !demand.enough.load(SeqCst) {
        if demand.backlog.load(SeqCst) >= LOW_WATER {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let chunk = feed.chunk(size);
        for (order, _) in chunk.iter().filter(|(_, fresh)| *fresh) {
            history.issued(order)?;
        }
        let orders: Vec<Order> = chunk.into_iter().map(|(order, _)| order).collect();
        send(&orders, &outlet, &mut history).await?;
        demand.backlog.fetch_add(orders.len() as u64, SeqCst);
        demand.made.store(feed.made(), SeqCst);
    }
    send(&feed.rest(), &outlet, &mut history).await?;
    history.close()
}

/// Sends until it is known to have arrived. After an error nobody knows, and it is sent again, as producers do.
async fn send(orders: &[Order], outlet: &Outlet, history: &mut Writer) -> anyhow::Result<()> {
    loop {
        let sent = match outlet {
            Outlet::Broker(broker) => {
                broker.send(orders);
                Ok(())
            }
            Outlet::Queue(queue) => queue.send(orders.iter().map(Order::message).collect::<anyhow::Result<_>>()?).await,
        };
        history.sent(orders, sent.is_ok())?;
        if sent.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE * 5).await;
    }
}
