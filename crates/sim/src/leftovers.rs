//! What is left in the sources when all processes have ended, and whether anything still holds it.

use std::time::Duration;

use oncebox::queue::{LaneRequest, LeaseRequest, QueueSpec, QueueStore, QueueTx};
use oncebox::{Clock, ConsumerName, Ended, Message, Session, Source, Store, StoreError, Transaction};
use tokio::time::sleep;

use crate::handler::Base;
use crate::history::Order;
use crate::scenario::Origin;
use crate::verdict::Kind;
use crate::world::{CONSUMER, QUEUE, World};

/// More than any run sends.
const ALL: usize = 100_000;

/// Finds what is left. All processes have ended cleanly, so everything must be free for the next one at once, but for
/// the delay of what failed.
pub(crate) async fn find(world: &World) -> Vec<Order> {
    sleep(world.scenario.backoff_max + Duration::from_millis(10)).await;
    let name = |name: &str| ConsumerName::new(name).expect("the names of a run are names");
    let lanes = world.scenario.ordered.then_some(QueueSpec::LANES);
    let mut left = Vec::new();
    match world.scenario.origin {
        Origin::Memory => left.extend(in_memory(world).await),
        Origin::Partitions => {
            let held = world.shelf.lock().held();
            if held > 0 {
                world.journal.wrong(Kind::Leak, format!("{held} messages are in the hands of nobody"));
            }
            left.extend(world.shelf.lock().left());
        }
        Origin::Queue => left.extend(in_queue(world, &QueueSpec { name: name(QUEUE), lanes }).await),
    }
    if world.scenario.stored {
        left.extend(in_queue(world, &QueueSpec::received(&name(CONSUMER), world.scenario.ordered)).await);
    }
    left.iter().filter_map(|message| serde_json::from_slice(&message.payload).ok()).collect()
}

async fn in_memory(world: &World) -> Vec<Message> {
    let free = Source::<Base>::receive(&world.memory, ALL, Duration::ZERO).await.unwrap_or_default();
    let held = world.memory.backlog() - free.len();
    if held > 0 {
        world.journal.wrong(Kind::Leak, format!("{held} messages are leased to nobody"));
    }
    free.into_iter().map(|delivery| Message::clone(&delivery.message)).collect()
}

async fn in_queue(world: &World, spec: &QueueSpec) -> Vec<Message> {
    let now = lease_all(world, spec).await;
    sleep(world.scenario.lease * 2).await;
    let later = lease_all(world, spec).await;
    match (now, later) {
        (Ok(now), Ok(later)) => {
            if now.len() < later.len() {
                let held = later.len() - now.len();
                world.journal.wrong(Kind::Leak, format!("{held} rows of {spec} are leased to nobody"));
            }
            later
        }
        (Err(error), _) | (_, Err(error)) => {
            world.journal.wrong(Kind::Engine, format!("cannot look into {spec}: {error}"));
            Vec::new()
        }
    }
}

/// Takes every lane and every row that is free.
async fn lease_all(world: &World, spec: &QueueSpec) -> Result<Vec<Message>, StoreError> {
    let lease = Duration::from_millis(1);
    let queue = world.store.queue(spec).await?;
    let mut tx = world.store.connect().await?.begin(Duration::from_secs(5)).await?;
    let mut lanes = None;
    if let Some(all) = spec.lanes {
        let request = LaneRequest { queue, owner: world.clock.id(), lease, give_back: Vec::new() };
        let held = tx.hold_lanes(&request).await?;
        let missing = usize::from(all) - held.lanes.len();
        if missing > 0 {
            world.journal.wrong(Kind::Leak, format!("{missing} lanes of {spec} are held by nobody"));
        }
        lanes = Some(held.lanes);
    }
    let rows = tx.lease(&LeaseRequest { queue, max: ALL, lease, lanes }).await?;
    match tx.commit().await {
        Ended::Committed(_) => Ok(rows.into_iter().map(|row| row.message).collect()),
        Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => Err(error),
    }
}
