//! The verdict: what the generator's history says against what the business tables hold.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::feed::{Order, Role};
use crate::history::{self, Known};
use crate::place::{Eye, NAME, Place};
use crate::row::{FeedKind, HandlerKind, Row};
use crate::worker::Journals;

/// What is wrong, counted. All zero: nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Findings {
    /// Sent for certain, and without an effect.
    pub(crate) lost: u64,
    /// Effects beyond the first of a message.
    pub(crate) doubled: u64,
    /// Effects of something that was never sent.
    pub(crate) phantoms: u64,
    /// Effects without a record, or records without an effect.
    pub(crate) unrecorded: u64,
    /// Effects that came before one that was sent earlier under the same key.
    pub(crate) unordered: u64,
    /// Committed for publication, and never on the wire.
    pub(crate) unpublished: u64,
    /// On the wire, and never committed.
    pub(crate) uncommitted: u64,
    /// Published again under another id.
    pub(crate) renamed: u64,
    /// First published before one that was emitted earlier under the same topic and key.
    pub(crate) inverted: u64,
    /// Rows of the outbox that were ended by a relay whose lane they were not in any more.
    pub(crate) trespasses: u64,
    /// Lanes of dead relays that stood still for longer than they may.
    pub(crate) slow_takeovers: u64,
    /// Business rows whose total is not the number of their effects.
    pub(crate) wrong_totals: u64,
    /// Hooks that ran for something that did not take effect, or more than once.
    pub(crate) early_hooks: u64,
    /// Handlers that were called again although nothing had gone wrong.
    pub(crate) needless_calls: u64,
    /// Deadlocks that the server saw where nobody locks rows in different orders.
    pub(crate) deadlocks: u64,
    /// Rows that left the parked messages without a recorded outcome of their message.
    pub(crate) vanished: u64,
    /// Messages that were still waiting.
    pub(crate) stuck: u64,
    /// Messages that should be set aside for a person, and are not.
    pub(crate) forgotten: u64,
    /// Messages that are set aside for a person, and did nothing wrong.
    pub(crate) blamed: u64,
    /// Messages that killed more processes than they may.
    pub(crate) unstopped: u64,
    /// Sessions that were left behind in the server.
    pub(crate) leaked_sessions: u64,
    /// Workers that did not end in order when they were asked to.
    pub(crate) hung_workers: u64,
    /// Faults that should have happened, and did not.
    pub(crate) missing_faults: u64,
}

impl Findings {
    pub(crate) fn is_clean(&self) -> bool {
        *self == Self::default()
    }

    /// The kinds of things that are wrong.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(serde_json::Value::Object(all)) = serde_json::to_value(self) else { return Vec::new() };
        all.into_iter().filter(|(_, count)| count.as_u64() != Some(0)).map(|(name, n)| format!("{name} {n}")).collect()
    }
}

/// What the tables hold, read by a connection of the auditor's own.
struct Tables {
    /// Message, key and place, in the order of their writing.
    effects: Vec<[u64; 3]>,
    records: u64,
    totals: HashMap<u64, u64>,
    /// Messages that are set aside for a person.
    dead: HashSet<u64>,
    /// Records that say so.
    parked_records: u64,
    /// Rows that left the parked messages while no record of theirs said how they ended.
    vanished: u64,
}

/// Calls that a message may use to kill processes: those before it is a suspect, those that prove it, and a few that
/// fell to other ends.
const KILLS_MAX: u64 = 12;

/// How long sessions of killed workers may take to go: a server notices when it next reads from them.
const SESSIONS_GONE: Duration = Duration::from_secs(10);

pub(crate) async fn audit(row: &Row, place: &Place, folder: &Path, backlog: u64) -> anyhow::Result<Findings> {
    let known = history::read(&folder.join("history"))?;
    let journals = Journals::read(folder)?;
    let mut eye = place.eye().await?;
    let tables = Tables::read(place, &mut eye).await?;
    let mut findings = judge(row, &known, &tables, &journals);
    findings.stuck = backlog;
    if let Eye::Postgres(_) = eye {
        findings.leaked_sessions = leaked_sessions(&mut eye).await?;
    }
    Ok(findings)
}

impl Tables {
    async fn read(place: &Place, eye: &mut Eye) -> anyhow::Result<Self> {
        let (effects, totals) = (place.table("crash_effects"), place.table("crash_totals"));
        let effects = eye.numbers(format!("select n, key, seq from {effects} order by at")).await?;
        let (inbox, consumers) = (place.table("inbox"), place.table("consumers"));
        let own = format!("select id from {consumers} where name = '{NAME}'");
        let records = eye.number(format!("select count(*) from {inbox} where consumer = ({own})")).await?;
        let totals = eye.numbers(format!("select key, total from {totals} where total > 0")).await?;
        let parked = place.table("parked");
        let rows = eye.bytes(format!("select payload from {parked} where due_at is null")).await?;
        let dead = rows.iter().map(|payload| Ok(serde_json::from_slice::<Order>(payload)?.n));
        let dead = dead.collect::<anyhow::Result<HashSet<u64>>>()?;
        let parked_records = eye.number(format!("select count(*) from {parked} where owns_record = 1")).await?;
        let left = place.table("crash_left");
        let parked = oncebox::OutcomeKind::Parked.code();
        let unended = format!("outcome is null or outcome = {parked}");
        let vanished = eye.number(format!("select count(*) from {left} where {unended}")).await?;
        Ok(Self {
            dead,
            vanished: vanished as u64,
            parked_records: parked_records as u64,
            effects: effects.iter().map(|row| [row[0] as u64, row[1] as u64, row[2] as u64]).collect(),
            records: records as u64,
            totals: totals.iter().map(|row| (row[0] as u64, row[1] as u64)).collect(),
        })
    }
}

/// Pure: everything that follows from what was read.
fn judge(row: &Row, known: &BTreeMap<u64, Known>, tables: &Tables, journals: &Journals) -> Findings {
    let mut findings = Findings { vanished: tables.vanished, ..Findings::default() };
    let mut seen: HashSet<u64> = HashSet::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut per_key: HashMap<u64, u64> = HashMap::new();
    let mut ids: HashSet<&str> = HashSet::new();
    for [n, key, seq] in &tables.effects {
        *per_key.entry(*key).or_default() += 1;
        let Some(known) = known.get(n) else {
            findings.phantoms += 1;
            continue;
        };
        seen.insert(*n);
        // Of two contents under one id either may come first; then the other must not take effect.
        if !ids.insert(&known.order.id) {
            findings.doubled += 1;
            continue;
        }
        let last = last.entry(*key).or_default();
        if row.keeps_order() && *seq <= *last {
            findings.unordered += 1;
        }
        *last = (*last).max(*seq);
    }
    let versions: HashSet<(u64, u64)> = tables.effects.iter().map(|[_, key, seq]| (*key, *seq)).collect();
    if row.feed == FeedKind::Versions {
        // Each is applied once, whoever brought it.
        findings.doubled += (tables.effects.len() - versions.len()) as u64;
    }
    let disputed: HashSet<&str> = (known.values())
        .filter(|known| known.order.role == Role::Conflict)
        .map(|known| known.order.id.as_str())
        .collect();
    for Known { order, acknowledged } in known.values() {
        let (applied, dead) = (seen.contains(&order.n), tables.dead.contains(&order.n));
        match order.role {
            // Of two contents under one id one is applied, and the other is set aside.
            _ if disputed.contains(order.id.as_str()) => {
                findings.lost += u64::from(*acknowledged && !ids.contains(order.id.as_str()));
                findings.forgotten += u64::from(*acknowledged && !applied && !dead);
            }
            _ if row.feed == FeedKind::Versions => {
                findings.lost += u64::from(*acknowledged && !versions.contains(&(order.key, order.seq)));
                findings.blamed += u64::from(dead);
            }
            Role::Killer => {
                findings.forgotten += u64::from(*acknowledged && !dead);
                let calls = journals.calls.get(&order.n).copied().unwrap_or(0);
                findings.unstopped += u64::from(calls > KILLS_MAX);
            }
            // A handler that swallows errors is wrong: whoever finds it out may keep its message for a person.
            Role::Swallowing => findings.lost += u64::from(*acknowledged && !applied && !dead),
            _ => {
                findings.lost += u64::from(*acknowledged && !applied && !dead);
                findings.blamed += u64::from(dead);
            }
        }
    }
    // What brought a version that was there has a record and no effect.
    let again = known.values().filter(|known| known.order.role == Role::Again && known.acknowledged).count() as u64;
    if row.handler != HandlerKind::Fenced {
        let due = ids.len() as u64 + again + tables.parked_records;
        findings.unrecorded = match row.feed {
            // While a change of keys is bridged, a message has a record under its key of before, and may have one of now.
            FeedKind::Rekeyed => due.saturating_sub(tables.records) + tables.records.saturating_sub(2 * due),
            _ => tables.records.abs_diff(due),
        };
    }
    if row.feed == FeedKind::HotKeys {
        let keys: HashSet<&u64> = per_key.keys().chain(tables.totals.keys()).collect();
        findings.wrong_totals =
            keys.into_iter().filter(|key| per_key.get(key) != tables.totals.get(key)).count() as u64;
    }
    let early = |(n, times): (&u64, &u64)| *times > 1 || !seen.contains(n);
    findings.early_hooks = journals.hooks.iter().filter(|hook| early(*hook)).count() as u64;
    if row.calls_once() {
        findings.needless_calls = journals.calls.values().map(|calls| calls - 1).sum();
    }
    findings
}

/// Sessions beside the auditor's own that do not go away.
pub(crate) async fn leaked_sessions(eye: &mut Eye) -> anyhow::Result<u64> {
    let sql = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
    let deadline = tokio::time::Instant::now() + SESSIONS_GONE;
    loop {
        let left = eye.number(sql.to_owned()).await?;
        if left == 0 || tokio::time::Instant::now() >= deadline {
            return Ok(left as u64);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Faults, SourceKind, StoreKind};

    fn known(orders: &[(u64, u64, u64, Role, bool)]) -> BTreeMap<u64, Known> {
        let one = |&(n, key, seq, role, acknowledged)| {
            // The conflict comes under the id of the first message.
            let id = format!("order-{}", if role == Role::Conflict { 0 } else { n });
            (n, Known { order: Order { n, key, seq, id, role, late: false }, acknowledged })
        };
        orders.iter().map(one).collect()
    }

    fn tables(effects: &[[u64; 3]], records: u64, totals: &[(u64, u64)]) -> Tables {
        // The other content under the id of the first message is set aside, whichever it is.
        let loser = if effects.iter().any(|[n, ..]| *n == 3) { 0 } else { 3 };
        let (totals, dead) = (totals.iter().copied().collect(), HashSet::from([loser]));
        Tables { effects: effects.to_vec(), records, totals, dead, parked_records: 0, vanished: 0 }
    }

    fn journals(calls: &[(u64, u64)], hooks: &[(u64, u64)]) -> Journals {
        Journals { calls: calls.iter().copied().collect(), hooks: hooks.iter().copied().collect() }
    }

    #[test]
    fn each_kind_of_wrong_is_found() {
        let row = Row::new(StoreKind::Sqlite, SourceKind::OrderedQueue, 1, Faults::Kill).feed(FeedKind::HotKeys);
        let plain = Role::Plain;
        let sent = known(&[
            (0, 1, 1, plain, true),
            (1, 1, 2, plain, true),
            (2, 1, 3, plain, false),
            (3, 1, 1, Role::Conflict, true),
        ]);
        let none = journals(&[], &[]);
        let good = tables(&[[0, 1, 1], [1, 1, 2]], 2, &[(1, 2)]);
        let hooked = journals(&[(0, 2)], &[(0, 1)]);
        assert!(judge(&row, &sent, &good, &hooked).is_clean(), "one that may have been sent need not have an effect");

        let lost = judge(&row, &sent, &tables(&[[0, 1, 1]], 1, &[(1, 1)]), &none);
        assert_eq!(lost, Findings { lost: 1, ..Findings::default() });
        let doubled = judge(&row, &sent, &tables(&[[0, 1, 1], [1, 1, 2], [1, 1, 2]], 2, &[(1, 3)]), &none);
        assert_eq!(doubled, Findings { doubled: 1, ..Findings::default() });
        let unordered = judge(&row, &sent, &tables(&[[1, 1, 2], [0, 1, 1]], 2, &[(1, 2)]), &none);
        assert_eq!(unordered, Findings { unordered: 1, ..Findings::default() });
        let phantom = judge(&row, &sent, &tables(&[[0, 1, 1], [1, 1, 2], [9, 1, 3]], 2, &[(1, 3)]), &none);
        assert_eq!(phantom, Findings { phantoms: 1, ..Findings::default() });
        let both = judge(&row, &sent, &tables(&[[0, 1, 1], [3, 1, 1], [1, 1, 2]], 2, &[(1, 3)]), &none);
        assert_eq!(both, Findings { doubled: 1, ..Findings::default() }, "two contents under one id");
        let other = judge(&row, &sent, &tables(&[[3, 1, 1], [1, 1, 2]], 2, &[(1, 2)]), &none);
        assert!(other.is_clean(), "the other content came first");
        let unrecorded = judge(&row, &sent, &tables(&[[0, 1, 1], [1, 1, 2]], 1, &[(1, 2)]), &none);
        assert_eq!(unrecorded, Findings { unrecorded: 1, ..Findings::default() });
        let totals = judge(&row, &sent, &tables(&[[0, 1, 1], [1, 1, 2]], 2, &[(1, 1)]), &none);
        assert_eq!(totals, Findings { wrong_totals: 1, ..Findings::default() });
        let forgotten = Tables { dead: HashSet::new(), ..tables(&[[0, 1, 1], [1, 1, 2]], 2, &[(1, 2)]) };
        assert_eq!(judge(&row, &sent, &forgotten, &none), Findings { forgotten: 1, ..Findings::default() });
        let blamed = Tables { dead: HashSet::from([3, 1]), ..tables(&[[0, 1, 1]], 1, &[(1, 1)]) };
        assert_eq!(judge(&row, &sent, &blamed, &none), Findings { blamed: 1, ..Findings::default() });
        let killer = known(&[(0, 1, 1, Role::Killer, true)]);
        let stopped = Tables { dead: HashSet::from([0]), ..tables(&[], 0, &[]) };
        assert!(judge(&row, &killer, &stopped, &journals(&[(0, KILLS_MAX)], &[])).is_clean());
        let unstopped = judge(&row, &killer, &stopped, &journals(&[(0, KILLS_MAX + 1)], &[]));
        assert_eq!(unstopped, Findings { unstopped: 1, ..Findings::default() });
        let vanished = Tables { vanished: 2, ..tables(&[[0, 1, 1], [1, 1, 2]], 2, &[(1, 2)]) };
        assert_eq!(judge(&row, &sent, &vanished, &none), Findings { vanished: 2, ..Findings::default() });
        let hooks = judge(&row, &sent, &good, &journals(&[], &[(0, 2), (2, 1)]));
        assert_eq!(hooks, Findings { early_hooks: 2, ..Findings::default() });

        let slow = Row::new(StoreKind::Sqlite, SourceKind::Queue, 1, Faults::None).feed(FeedKind::Slow);
        let calls = judge(&slow, &sent, &good, &journals(&[(0, 1), (1, 3)], &[]));
        assert_eq!(calls, Findings { needless_calls: 2, ..Findings::default() });
    }
}
