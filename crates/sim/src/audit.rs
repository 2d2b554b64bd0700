//! The independent audit: business rows and inbox records against what was sent. It asks no consumer anything.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use oncebox::claim::{Claim, ClaimRequest};
use oncebox::memory::Departure;
use oncebox::{ConsumerName, Fingerprinter, Inbox, Key, Message, OutcomeKind, Session, Store, StoreError, Transaction};

use crate::handler::{EFFECTS, Effect};
use crate::history::{Ends, Order};
use crate::scenario::Origin;
use crate::verdict::{Kind, Verdict};
use crate::world::{CONSUMER, World};

/// Compares what is there with what was sent.
pub(crate) async fn audit(world: &World, left: &[Order]) -> Verdict {
    let parked: Vec<Order> = parked(world).await;
    let effects: Vec<Effect> = match world.store.with_db(|db| db.rows(EFFECTS)).await {
        Ok(effects) => effects,
        Err(error) => {
            world.journal.wrong(Kind::Engine, format!("cannot read the effects: {error}"));
            Vec::new()
        }
    };
    once_each(world, &effects, left, &parked);
    conflicts_are_kept(world, &effects, left, &parked);
    if world.scenario.ordered || world.scenario.hazards.gap.is_some() {
        in_order(world, &effects);
    }
    nothing_vanished(world, &effects).await;
    if let Err(error) = recorded(world, &effects, &parked).await {
        world.journal.wrong(Kind::Engine, format!("cannot read the inbox: {error}"));
    }
    hooks(world, &effects);
    ends(world).await;

    let summary = world.journal.summary();
    let (wrongs, trace) = world.journal.close();
    Verdict {
        seed: world.scenario.seed,
        wrongs,
        messages: world.history.variants().len() as u64,
        deliveries: summary.deliveries,
        effects: effects.len() as u64,
        faults: summary.faults,
        hash: summary.hash,
        trace,
    }
}

/// What is set aside.
async fn parked(world: &World) -> Vec<Order> {
    let parked = world.store.parked().await;
    for park in &parked {
        let (id, key, verdict) = (park.message.label(), park.order_key.as_deref(), &park.verdict);
        world.journal.note(format_args!("parked is {id} of {key:?}: {:?}, {}", verdict.waits, verdict.reason));
    }
    parked.iter().filter_map(|park| serde_json::from_slice(&park.message.payload).ok()).collect()
}

/// Every id that is due took effect once; those that wait behind a conflict took none and are still there.
fn once_each(world: &World, effects: &[Effect], left: &[Order], parked: &[Order]) {
    let mut times: HashMap<&str, u32> = HashMap::new();
    for effect in effects {
        *times.entry(&effect.order.id).or_default() += 1;
    }
    let variants = world.history.variants();
    for (id, orders) in &variants {
        let times = times.remove(id).unwrap_or(0);
        if times > 1 {
            world.journal.wrong(Kind::Doubled, format!("{id} took effect {times} times"));
        }
        let discarded = world.journal.was_discarded(id);
        if times > 0 && discarded == Some(true) {
            world.journal.wrong(Kind::Discarded, format!("{id} took effect, and an operator had given it up"));
        }
        if times == 0 && discarded.is_none() {
            let is_left = orders.iter().any(|order| left.contains(order) || parked.contains(order));
            match (world.promise.due.contains(*id), is_left) {
                (true, true) => world.journal.wrong(Kind::Stuck, format!("{id} took no effect and is still there")),
                (_, false) => world.journal.wrong(Kind::Lost, format!("{id} took no effect and is gone")),
                (false, true) => {}
            }
        } else if world.promise.held.contains(*id) && !was_let_go(world, orders[0]) {
            world.journal.wrong(Kind::Unordered, format!("{id} overtook a conflict of its order key"));
        }
    }
    for id in times.keys() {
        world.journal.wrong(Kind::Doubled, format!("{id} took effect and was never sent"));
    }
}

/// A message under a key that belongs to another is never dropped; and nothing else is left, but what may wait for it.
fn conflicts_are_kept(world: &World, effects: &[Effect], left: &[Order], parked: &[Order]) {
    let winners: HashMap<&str, u32> = effects.iter().map(|e| (e.order.id.as_str(), e.order.variant)).collect();
    let count = |orders: &mut dyn Iterator<Item = &Order>, of: &Order| orders.filter(|order| *order == of).count();
    for orders in world.history.variants().values() {
        for order in orders {
            let sent = count(&mut world.history.sent.iter().map(|sent| &sent.order), order);
            let left = count(&mut left.iter(), order);
            match winners.get(order.id.as_str()) {
                // Set aside once, whatever the number of its copies.
                Some(winner)
                    if *winner != order.variant
                        && left < sent
                        && !parked.contains(order)
                        && world.journal.was_discarded(&order.id).is_none() =>
                {
                    let what = format!("{} of {sent} conflicts under {} were dropped", sent - left, order.id);
                    world.journal.wrong(Kind::Conflict, what);
                }
                // A duplicate behind a conflict waits with the others.
                Some(winner) if *winner == order.variant && left > 0 && !behind_a_conflict(world, order) => {
                    world.journal.wrong(Kind::Stuck, format!("{left} copies of {} are still there", order.id));
                }
                _ => {}
            }
        }
    }
}

/// Whether an operator gave up a message of this one's order key, and so let go what was behind it.
fn was_let_go(world: &World, order: &Order) -> bool {
    let key = world.history.sent.iter().find(|sent| sent.order == *order).and_then(|sent| sent.key());
    let of_key = world.history.sent.iter().filter(|sent| key.is_some() && sent.key() == key);
    of_key.into_iter().any(|sent| world.journal.was_discarded(&sent.order.id).is_some())
}

/// Whether a copy of this message was sent after a conflict of its order key, where order is kept.
fn behind_a_conflict(world: &World, order: &Order) -> bool {
    let variants = world.history.variants();
    let disputed = |id: &str| variants.get(id).is_some_and(|orders| orders.len() > 1);
    let key = world.history.sent.iter().find(|sent| sent.order == *order).and_then(|sent| sent.key());
    world.scenario.ordered
        && world.history.sent.iter().any(|sent| key.is_some() && sent.key() == key && disputed(&sent.order.id))
}

/// No row leaves the parked messages without its effect, a recorded outcome or an operator's act: when one was ended, the
/// record under its key was of the same message and said how that ended, and where it says applied there is an effect.
async fn nothing_vanished(world: &World, effects: &[Effect]) {
    let applied: HashSet<&Order> = effects.iter().map(|effect| &effect.order).collect();
    for Departure { park, record } in world.store.departures().await {
        let Ok(order) = serde_json::from_slice::<Order>(&park.message.payload) else { continue };
        let why = match record {
            None => "there was no record of it",
            Some((_, OutcomeKind::Parked)) => "its record said that it was parked",
            Some((fingerprint, _)) if fingerprint != park.fingerprint => "its record was of another message",
            Some((_, OutcomeKind::Applied)) if !applied.contains(&order) => "it took no effect",
            Some(_) => continue,
        };
        world.journal.wrong(Kind::Vanished, format!("{} left the parked messages, and {why}", order.id));
    }
}

/// First effects of an order key come in the order in which their messages were first sent.
fn in_order(world: &World, effects: &[Effect]) {
    let places = world.history.first_places();
    let mut last: HashMap<&str, usize> = HashMap::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for effect in effects {
        let Some(&place) = places.get(&effect.order) else { continue };
        let Some(key) = world.history.sent[place].key() else { continue };
        // Where versions keep order, the order of sending means nothing.
        let place = effect.order.version.map_or(place, |version| version as usize);
        // A second effect is counted as doubled, not as an overtaking.
        if !seen.insert(&effect.order.id) {
            continue;
        }
        // An operator took the one that could not be tried out of the way; a copy that came later is as a new message.
        if world.journal.was_discarded(&effect.order.id) == Some(false) {
            continue;
        }
        let before = last.insert(key, place);
        if before.is_some_and(|before| before > place) {
            let what = format!("{} took effect after a later message of {key}", effect.order.id);
            world.journal.wrong(Kind::Unordered, what);
        }
        let first = world.history.variants().get(effect.order.id.as_str()).map(|orders| orders[0].variant);
        if first != Some(effect.order.variant) && effect.order.version.is_none() {
            let what = format!("the second message under {} overtook the first", effect.order.id);
            world.journal.wrong(Kind::Unordered, what);
        }
    }
}

/// Effect and record go together: claiming each key again finds exactly the effects, and how they ended.
async fn recorded(world: &World, effects: &[Effect], parked: &[Order]) -> Result<(), StoreError> {
    let name = ConsumerName::new(CONSUMER).expect("the consumer has a name");
    let consumer = world.store.consumer(&name).await?;
    let mut tx = world.store.connect().await?.begin(Duration::from_secs(5)).await?;
    let wrong = |what: String| world.journal.wrong(Kind::Record, what);
    let applied: HashMap<&str, &Order> =
        effects.iter().map(|effect| (effect.order.id.as_str(), &effect.order)).collect();
    for (id, orders) in world.history.variants() {
        for &order in &orders {
            let Some(sent) = world.history.sent.iter().find(|sent| sent.order == *order) else { continue };
            let claim = tx.claim(&[request(consumer, id, &sent.message)?]).await?.into_iter().next();
            match (applied.get(id), claim) {
                (None, Some(Claim::Fresh)) => break,
                (None, Some(Claim::Duplicate(earlier))) if earlier.is_parked() && parked.contains(order) => {}
                (None, Some(Claim::Duplicate(earlier)))
                    if earlier.outcome.kind() == OutcomeKind::Rejected && world.journal.was_discarded(id).is_some() => {
                }
                (None, Some(Claim::Conflict(_)))
                    if orders.iter().any(|other| *other != order && parked.contains(other)) => {}
                (Some(applied), Some(Claim::Duplicate(earlier))) if *applied == order => {
                    let (kind, result) = (earlier.outcome.kind(), earlier.outcome.result());
                    let expected = match order.ends {
                        Ends::Applied => kind == OutcomeKind::Applied && result.is_none(),
                        Ends::WithResult => {
                            kind == OutcomeKind::Applied && earlier.outcome.json() == Some(id.to_owned())
                        }
                        Ends::Rejected => kind == OutcomeKind::Rejected && result.is_some_and(|said| *said == id),
                    };
                    if !expected {
                        wrong(format!(
                            "the record of {id} says {:?}, and it ended as {:?}",
                            earlier.outcome, order.ends
                        ));
                    }
                }
                (Some(applied), Some(Claim::Conflict(_))) if *applied != order => {}
                (Some(_), claim) => wrong(format!("{id} took effect, and claiming it again answers {claim:?}")),
                (None, claim) => wrong(format!("{id} took no effect, and claiming it answers {claim:?}")),
            }
        }
    }
    tx.rollback().await;
    Ok(())
}

fn request(consumer: oncebox::ConsumerId, id: &str, message: &Message) -> Result<ClaimRequest, StoreError> {
    let fingerprint = Fingerprinter::default().fingerprint(message);
    let key = Key::id(id).expect("the ids of a run are keys");
    Ok(ClaimRequest { consumer, key, fingerprint, id_hash: None })
}

/// Hooks ran for what was committed. What ran too early or too often was written down when it did.
fn hooks(world: &World, effects: &[Effect]) {
    let rows: HashSet<u64> = effects.iter().map(|effect| effect.run).collect();
    if rows != world.journal.committed() {
        let what = "the rows of the business table are not those whose commit was seen".to_owned();
        world.journal.wrong(Kind::Record, what);
    }
    let crashed = world.scenario.ends.iter().any(|_| true);
    let heals = world.scenario.hook_on_duplicates && world.scenario.origin == Origin::Memory && !world.scenario.stored;
    if heals && !crashed {
        for effect in effects {
            if !world.journal.was_settled(&effect.order.id) {
                world.journal.wrong(Kind::Hook, format!("no hook ran for {}", effect.order.id));
            }
        }
    }
}

/// Nothing goes on after the end, and no lost commit was forgotten.
async fn ends(world: &World) {
    let alive = world.idle().await;
    if alive > 0 {
        world.journal.wrong(Kind::Leak, format!("{alive} tasks live on after their process"));
    }
    let summary = world.journal.summary();
    // In stored mode the queue behind the consumer uses its store too, and leaves its own lost commits to time. A
    // process that ends leaves them to its successor's claims.
    if !world.scenario.stored && world.scenario.ends.is_empty() && summary.doubts > summary.resolved {
        let forgotten = summary.doubts - summary.resolved;
        world.journal.wrong(Kind::Doubt, format!("{forgotten} lost commits were not laid to rest"));
    }
}
