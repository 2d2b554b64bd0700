//! The verdict on a row with hops: what was sent and committed against what took effect and what was on the wire.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::Context;

use super::line::{Line, Seen};
use super::row::{HopsRow, Shape};
use super::tables::{self, Forwarded, State};
use super::takeover::{self, RelayKill};
use crate::audit::{Findings, leaked_sessions};
use crate::feed::Order;
use crate::history::{self, Known};
use crate::place::{Eye, Place};

/// One effect: message, key, place under the key, token.
type Effect = [i64; 4];

/// What the auditor read.
struct Facts {
    /// What the generator sent; `None` where a writer commits by itself.
    known: Option<BTreeMap<u64, Known>>,
    /// In the order of their writing.
    first: Vec<Effect>,
    /// `None` where nobody reads topic 2.
    second: Option<Vec<Effect>>,
    /// In the order of their publication, with the id of each.
    wire: Vec<(String, Forwarded)>,
}

/// What was measured beside the findings.
pub(super) struct Audit {
    pub(super) findings: Findings,
    /// How long lanes of dead relays stood still.
    pub(super) waits: Vec<std::time::Duration>,
    /// Messages on topic 2, those that were published again included.
    pub(super) published: u64,
}

pub(super) async fn audit(
    row: &HopsRow,
    place: &Place,
    line: &Line,
    folder: &Path,
    kills: &[RelayKill],
    left: State,
) -> anyhow::Result<Audit> {
    let two = row.shape == Shape::TwoHops;
    let mut eye = place.eye().await?;
    let facts = Facts {
        known: if two { Some(history::read(&folder.join("history"))?) } else { None },
        first: effects(&mut eye, &tables::first(place)).await?,
        second: if two { Some(effects(&mut eye, &tables::second(place)).await?) } else { None },
        wire: line.tap().await?.iter().map(read).collect::<anyhow::Result<_>>()?,
    };
    let mut findings = judge(&facts);
    findings.stuck = left.outbox + left.parked + if two { line.lag().await? } else { 0 };
    let mut waits = Vec::new();
    if let Place::Postgres { .. } = place {
        let ended = tables::ended(place);
        // A relay's number and the one under which it holds lanes; see `tables::owner`.
        let sql = format!("select count(*) from {ended} where owner is distinct from relay + 1");
        findings.trespasses = eye.number(sql).await? as u64;
        waits = takeover::waits(kills, &takeover::read(place, &mut eye).await?);
        findings.slow_takeovers = waits.iter().filter(|wait| **wait > row.takeover_max()).count() as u64;
        findings.leaked_sessions = leaked_sessions(&mut eye).await?;
    }
    Ok(Audit { findings, waits, published: facts.wire.len() as u64 })
}

async fn effects(eye: &mut Eye, table: &str) -> anyhow::Result<Vec<Effect>> {
    let rows = eye.numbers(format!("select n, key, seq, token from {table} order by at")).await?;
    rows.iter().map(|row| Effect::try_from(row.as_slice()).context("an effect has four numbers")).collect()
}

fn read(seen: &Seen) -> anyhow::Result<(String, Forwarded)> {
    let forwarded = serde_json::from_slice(&seen.payload).context("something else is on topic 2")?;
    Ok((seen.id.clone(), forwarded))
}

/// Pure: everything that follows from what was read.
fn judge(facts: &Facts) -> Findings {
    let mut findings = Findings::default();
    for hop in [Some(&facts.first), facts.second.as_ref()].into_iter().flatten() {
        judge_hop(hop, facts.known.as_ref(), &mut findings);
    }
    judge_wire(facts, &mut findings);
    findings
}

/// Every message once, in the order of its key.
fn judge_hop(effects: &[Effect], known: Option<&BTreeMap<u64, Known>>, findings: &mut Findings) {
    let mut seen: HashSet<i64> = HashSet::new();
    let mut last: HashMap<i64, i64> = HashMap::new();
    for [n, key, seq, _] in effects {
        if known.is_some_and(|known| !known.contains_key(&(*n as u64))) {
            findings.phantoms += 1;
        } else if !seen.insert(*n) {
            findings.doubled += 1;
        } else {
            let last = last.entry(*key).or_default();
            findings.unordered += u64::from(*seq <= *last);
            *last = (*last).max(*seq);
        }
    }
    let acknowledged = known.into_iter().flatten().filter(|(_, known)| known.acknowledged);
    findings.lost += acknowledged.filter(|(n, _)| !seen.contains(&(**n as i64))).count() as u64;
}

/// Everything that was committed, nothing else, each under one id, and first publications in the order of their key.
fn judge_wire(facts: &Facts, findings: &mut Findings) {
    let committed: HashSet<i64> = facts.first.iter().map(|[.., token]| *token).collect();
    let mut ids: HashMap<i64, &str> = HashMap::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    for (id, Forwarded { order: Order { key, seq, .. }, token }) in &facts.wire {
        if !committed.contains(token) {
            findings.uncommitted += 1;
            continue;
        }
        match ids.insert(*token, id) {
            Some(before) => findings.renamed += u64::from(before != id),
            None => {
                let last = last.entry(*key).or_default();
                findings.inverted += u64::from(*seq <= *last);
                *last = (*last).max(*seq);
            }
        }
    }
    findings.unpublished = committed.iter().filter(|token| !ids.contains_key(token)).count() as u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Role;

    fn order(n: u64) -> Order {
        Order { n, key: 1, seq: n, id: format!("order-{n}"), role: Role::Plain, late: false }
    }

    fn effect(n: i64) -> Effect {
        [n, 1, n, n * 10]
    }

    fn published(n: u64) -> (String, Forwarded) {
        (format!("id-{n}"), Forwarded { order: order(n), token: n as i64 * 10 })
    }

    fn good() -> Facts {
        let known = (1..=3).map(|n| (n, Known { order: order(n), acknowledged: n < 3 })).collect();
        Facts {
            known: Some(known),
            first: vec![effect(1), effect(2)],
            second: Some(vec![effect(1), effect(2)]),
            wire: vec![published(1), published(1), published(2), published(1)],
        }
    }

    #[test]
    fn each_kind_of_wrong_is_found() {
        assert!(judge(&good()).is_clean(), "what was published again is no fault, nor is what may not have been sent");
        let none = Findings::default;
        let wrong = |change: &dyn Fn(&mut Facts)| {
            let mut facts = good();
            change(&mut facts);
            judge(&facts)
        };
        let second = |effects: Vec<Effect>| move |facts: &mut Facts| facts.second = Some(effects.clone());
        assert_eq!(wrong(&second(vec![effect(1)])), Findings { lost: 1, ..none() });
        assert_eq!(wrong(&second(vec![effect(1), effect(2), effect(2)])), Findings { doubled: 1, ..none() });
        assert_eq!(wrong(&second(vec![effect(2), effect(1)])), Findings { unordered: 1, ..none() });
        assert_eq!(wrong(&second(vec![effect(1), effect(2), effect(9)])), Findings { phantoms: 1, ..none() });
        let wire = |wire: Vec<(String, Forwarded)>| move |facts: &mut Facts| facts.wire = wire.clone();
        assert_eq!(wrong(&wire(vec![published(1)])), Findings { unpublished: 1, ..none() });
        assert_eq!(wrong(&wire(vec![published(2), published(1)])), Findings { inverted: 1, ..none() });
        let rolled_back = (String::new(), Forwarded { order: order(2), token: 21 });
        assert_eq!(wrong(&wire(vec![published(1), rolled_back, published(2)])), Findings { uncommitted: 1, ..none() });
        let renamed = ("another".to_owned(), published(1).1);
        assert_eq!(wrong(&wire(vec![published(1), renamed, published(2)])), Findings { renamed: 1, ..none() });
    }
}
