//! An operator: looks at what is dead, revives it or gives it up, while consumers run and copies come.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use oncebox::quarantine::{ParkedRow, Quarantine};
use oncebox::{ConsumerName, Ended, Session, Store, StoreError, Transaction};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::history::Order;
use crate::verdict::Kind;
use crate::world::{CONSUMER, World, set};

/// How long they pause between two looks once everything has healed.
const CALM: Duration = Duration::from_millis(200);

/// More than any run sends.
const ALL: usize = 100_000;

/// Looks after the dead until the run ends. Whatever the storm left dead is revived when it is over.
pub(crate) async fn attend(world: Arc<World>, mut stop: watch::Receiver<bool>) {
    let mut dice = fastrand::Rng::with_seed(world.scenario.seed ^ 0x6f70_6572_6174_6f72);
    loop {
        let healed = world.is_healed();
        let pause = match world.scenario.hazards.operator {
            _ if healed => CALM,
            Some(pause) => pause.mul_f64(0.5 + dice.f64()),
            None => world.until_healed(),
        };
        tokio::select! {
            biased;
            () = set(&mut stop) => return,
            () = sleep(pause) => {}
        }
        if let Err(error) = look(&world, &mut dice).await {
            world.journal.note(format_args!("the operator comes again later: {error}"));
        }
    }
}

async fn look(world: &World, dice: &mut fastrand::Rng) -> Result<(), StoreError> {
    let name = ConsumerName::new(CONSUMER).expect("the consumer has a name");
    let consumer = world.store.consumer(&name).await?;
    let mut tx = world.store.connect().await?.begin(Duration::from_secs(5)).await?;
    let (mut revived, mut discarded) = (Vec::new(), Vec::new());
    let rows = tx.page(consumer, 0, ALL).await?;
    // Where the message that has the key is parked behind the one that is in conflict with it, they wait for each other
    // until a person decides for one of them.
    let has_key_behind: HashSet<i64> = (rows.iter())
        .filter(|row| row.cause.as_str().ends_with("/conflict") && row.order_key.is_some())
        .filter(|row| {
            let is_behind = |other: &&ParkedRow| other.row > row.row && other.order_key == row.order_key;
            rows.iter().filter(is_behind).any(|other| other.owns_record && other.key == row.key)
        })
        .map(|row| row.row)
        .collect();
    for row in rows.into_iter().filter(ParkedRow::is_dead) {
        let Ok(order) = serde_json::from_slice::<Order>(&row.message.payload) else { continue };
        if world.is_healed() {
            // Another message under an id that is taken stays dead for good.
            match (world.journal.has_applied(&order.id), has_key_behind.contains(&row.row)) {
                (true, _) => {}
                (false, true) => discarded.push((row, order)),
                (false, false) => revived.push((row, order)),
            }
        } else if dice.u32(0..1_000) < world.scenario.hazards.discards && world.may_discard() {
            discarded.push((row, order));
        } else if dice.bool() {
            revived.push((row, order));
        }
    }
    let numbers = |rows: &[(ParkedRow, Order)]| rows.iter().map(|(row, _)| row.row).collect::<Vec<i64>>();
    let were_revived = tx.revive(&numbers(&revived), None).await?;
    let were_discarded = tx.discard(&numbers(&discarded), "the seed says so").await?;
    // Nothing goes wrong on this store.
    if let Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } = tx.commit().await {
        world.journal.wrong(Kind::Engine, format!("an operator's commit failed: {error}"));
        return Err(error);
    }
    for ((_, order), _) in revived.iter().zip(were_revived).filter(|(_, done)| *done) {
        world.journal.note(format_args!("the operator revives {}", order.id));
    }
    for ((row, order), _) in discarded.iter().zip(were_discarded).filter(|(_, done)| *done) {
        world.journal.discarded(&order.id, row.owns_record);
    }
    Ok(())
}
