//! What goes wrong, where and how often.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::splitmix;
use crate::names;

/// Every seam call that can fail: those of a store and its transactions, those of the queue role, those of a source.
/// A store and a source each have a `release` and an `extend`; give them plans of their own to tell them apart.
pub const CALLS: &[&str] = &[
    "connect",
    "consumer",
    "resolve",
    "begin",
    "claim",
    "record",
    "reclaim",
    "unclaim",
    "commit",
    "rollback",
    "queue",
    "enqueue",
    "lease",
    "settle",
    "release",
    "extend",
    "hold-lanes",
    "leave-lanes",
    "park",
    "is-blocked",
    "lease-parked",
    "extend-parked",
    "end-parked",
    "put-back",
    "release-parked",
    "count-blocking",
    "count-gaps",
    "wake-gaps",
    "mark",
    "back-to-mark",
    "note-start",
    "note-wait",
    "forget-starts",
    "read-versions",
    "lock-versions",
    "advance-versions",
    "take-offsets",
    "begin-offsets",
    "lock-offsets",
    "advance-offsets",
    "page",
    "parked",
    "causes",
    "remembered",
    "annotate",
    "discard",
    "revive",
    "take-in-hand",
    "supersede",
    "create-replay",
    "replay",
    "replays",
    "open-replays",
    "hold-replay",
    "let-go-replay",
    "save-replay",
    "on-their-way",
    "sweep-replays",
    "audit",
    "audit-log",
    "consumers",
    "horizon",
    "store-time",
    "expire",
    "old-records",
    "sweep-received",
    "set-checkpoint",
    "archived",
    "archive-size",
    "sweep-archive",
    "add-to-journal",
    "read-journal",
    "sweep-journal",
    "outbox",
    "emit",
    "fetch-unsent",
    "end-sent",
    "set-unsent-aside",
    "page-aside",
    "retry-aside",
    "skip-aside",
    "outbox-backlog",
    "sweep-sent",
    "open",
    "receive",
    "ack-in",
    "ack",
];

/// What goes wrong with a seam call.
///
/// A call on a transaction that fails takes the transaction with it: nothing of it can be committed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not done and fails as if the other side were away. A commit is certainly rolled back.
    BeforeDoing,
    /// It is done, and the answer is lost. A commit is durable and answered with "unknown".
    AfterDoing,
    /// It is not done, and nobody can tell. A commit is rolled back and answered with "unknown"; a source says that an
    /// acknowledgement, release or extension is done, and receives deliveries without handing them on. Any other call
    /// fails as with `BeforeDoing`.
    Lost,
    /// It is not done, because someone else is in the way. A source fails as with `BeforeDoing`.
    Contended,
    /// It is not done, and will not be before a person has changed something. A source fails as with `BeforeDoing`.
    Misconfigured,
    /// It is not done, and this session will not do it: another one may. A source fails as with `BeforeDoing`.
    Stale,
    /// It is done after this long.
    Delay(Duration),
    /// A commit whose answer is lost at once, and that the other side makes this long after. Its doubt is resolved when
    /// that has happened. Any other call is done after this long.
    Late(Duration),
    /// It is done twice, as if someone in between had sent it again, and answered with the first answer. What can't be
    /// done twice (begin, commit, rollback, and whatever a source is handed for good) is done once.
    Repeat,
}

/// What goes wrong, shared by a test with the stores and sources under it. Clones are the same plan.
///
/// ```
/// use oncebox_testkit::faults::{Fault, FaultPlan};
///
/// let plan = FaultPlan::new();
/// plan.fail("commit", Fault::AfterDoing, 2); // the next two commits
/// plan.random(42, 0.05, &["begin", "claim", "commit"]); // and one in twenty of these, by the dice of seed 42
/// ```
#[derive(Clone, Default)]
pub struct FaultPlan {
    shared: Arc<Mutex<Plan>>,
}

/// What became of a transaction, for those who [watch](FaultPlan::watch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// It has begun: on a store with one writer, nobody else has one open.
    Begun,
    /// It has set a mark.
    Marked,
    /// What was done since its mark is undone.
    WentBack,
    /// It is durable, whatever its owner is told, and whenever.
    Committed,
}

type Decide = Box<dyn FnMut(&'static str) -> Option<Fault> + Send>;
type Watch = Arc<dyn Fn(Moment) + Send + Sync>;

#[derive(Default)]
struct Plan {
    /// Every call so far, in order.
    made: Vec<&'static str>,
    /// Faults at the next calls of a name: the first rule that is not used up applies.
    rules: Vec<Rule>,
    /// A fault at one call, whatever its name, by its place in `made`.
    at: Option<(usize, Fault)>,
    /// Whether every call is done twice.
    repeat_all: bool,
    random: Option<Random>,
    decide: Option<Decide>,
    watch: Option<Watch>,
    injected: usize,
}

struct Rule {
    call: &'static str,
    fault: Fault,
    times: usize,
}

struct Random {
    dice: AtomicU64,
    probability: f64,
    calls: Vec<&'static str>,
}

impl FaultPlan {
    /// A plan by which nothing goes wrong yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `times` calls of this name go wrong. Further rules for the same name come after it.
    ///
    /// # Panics
    ///
    /// If there is no such call; the message names the nearest.
    pub fn fail(&self, call: &str, fault: Fault, times: usize) {
        let rule = Rule { call: known(call), fault, times };
        self.plan().rules.push(rule);
    }

    /// From now on each of these calls goes wrong with this probability, before or after it is done (a commit may also
    /// be lost), by the dice of `seed`. Print the seed when a run fails. With several tasks, calls come in another order
    /// each time, so a seed repeats the faults and not the whole run.
    ///
    /// # Panics
    ///
    /// If there is no such call; the message names the nearest.
    pub fn random(&self, seed: u64, probability: f64, calls: &[&str]) {
        let calls = calls.iter().map(|call| known(call)).collect();
        self.plan().random = Some(Random { dice: AtomicU64::new(seed), probability, calls });
    }

    /// From now on `decide` says what goes wrong with each call that no rule is for. It is told the call's name, and
    /// sees every call in the order they are made, so it can keep a record of a run as well. It must not use this plan.
    pub fn decide(&self, decide: impl FnMut(&'static str) -> Option<Fault> + Send + 'static) {
        self.plan().decide = Some(Box::new(decide));
    }

    /// Tells `watch` when a transaction of a store with this plan has begun, marked, gone back or committed.
    pub fn watch(&self, watch: impl Fn(Moment) + Send + Sync + 'static) {
        self.plan().watch = Some(Arc::new(watch));
    }

    /// From now on nothing goes wrong: what is left of the plan is dropped, and what was counted stays.
    pub fn calm(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.at = None;
        plan.repeat_all = false;
        plan.random = None;
        plan.decide = None;
    }

    /// Every call so far, in order.
    pub fn made(&self) -> Vec<&'static str> {
        self.plan().made.clone()
    }

    /// How often a call of this name was made.
    ///
    /// # Panics
    ///
    /// If there is no such call; the message names the nearest.
    pub fn count(&self, call: &str) -> usize {
        let call = known(call);
        self.plan().made.iter().filter(|made| **made == call).count()
    }

    /// How many calls went wrong.
    pub fn injected(&self) -> usize {
        self.plan().injected
    }

    /// A plan by which the call at this place goes wrong.
    pub(super) fn at(place: usize, fault: Fault) -> Self {
        let plan = Self::new();
        plan.plan().at = Some((place, fault));
        plan
    }

    /// A plan by which every call is done twice.
    pub(super) fn repeating() -> Self {
        let plan = Self::new();
        plan.plan().repeat_all = true;
        plan
    }

    /// Notes a call and says what goes wrong with it, after waiting if that is what goes wrong.
    pub(super) async fn next(&self, call: &'static str) -> Option<Fault> {
        let fault = self.plan().next(call);
        match fault {
            Some(Fault::Late(_)) if call == "commit" => fault,
            Some(Fault::Delay(time) | Fault::Late(time)) => {
                tokio::time::sleep(time).await;
                None
            }
            fault => fault,
        }
    }

    /// Tells whoever watches.
    pub(super) fn tell(&self, moment: Moment) {
        let watch = self.plan().watch.clone();
        if let Some(watch) = watch {
            watch(moment);
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn next(&mut self, call: &'static str) -> Option<Fault> {
        let place = self.made.len();
        self.made.push(call);
        let fault = self.planned(call, place);
        self.injected += usize::from(fault.is_some());
        fault
    }

    fn planned(&mut self, call: &'static str, place: usize) -> Option<Fault> {
        if let Some((at, fault)) = self.at
            && at == place
        {
            return Some(fault);
        }
        if let Some(rule) = self.rules.iter_mut().find(|rule| rule.call == call && rule.times > 0) {
            rule.times -= 1;
            return Some(rule.fault);
        }
        if self.repeat_all {
            return Some(Fault::Repeat);
        }
        if let Some(decide) = &mut self.decide {
            return decide(call);
        }
        self.random.as_ref().filter(|random| random.calls.contains(&call))?.roll(call)
    }
}

impl Random {
    fn roll(&self, call: &str) -> Option<Fault> {
        // The upper 53 bits make a number from 0 up to 1.
        let rolled = (splitmix(&self.dice) >> 11) as f64 / (1_u64 << 53) as f64;
        if rolled >= self.probability {
            return None;
        }
        let ways = ways_to_fail(call);
        let chosen = splitmix(&self.dice) % ways.len() as u64;
        usize::try_from(chosen).ok().map(|chosen| ways[chosen])
    }
}

/// How a call can fail so that someone notices a difference.
pub(super) fn ways_to_fail(call: &str) -> &'static [Fault] {
    match call {
        "commit" | "receive" | "ack" | "release" | "extend" => &[Fault::BeforeDoing, Fault::AfterDoing, Fault::Lost],
        _ => &[Fault::BeforeDoing, Fault::AfterDoing],
    }
}

fn known(call: &str) -> &'static str {
    names::find("seam call", call, CALLS).unwrap_or_else(|error| panic!("{error}"))
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan();
        f.debug_struct("FaultPlan").field("made", &plan.made.len()).field("injected", &plan.injected).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn faults(plan: &FaultPlan, call: &'static str, calls: usize) -> Vec<Option<Fault>> {
        let mut faults = Vec::new();
        for _ in 0..calls {
            faults.push(plan.next(call).await);
        }
        faults
    }

    #[tokio::test]
    async fn rules_apply_one_after_another_and_only_to_their_call() {
        let plan = FaultPlan::new();
        plan.fail("commit", Fault::BeforeDoing, 2);
        plan.fail("commit", Fault::Lost, 1);
        assert_eq!(faults(&plan, "begin", 1).await, [None]);
        let expected = [Some(Fault::BeforeDoing), Some(Fault::BeforeDoing), Some(Fault::Lost), None];
        assert_eq!(faults(&plan, "commit", 4).await, expected);
        assert_eq!((plan.count("commit"), plan.injected()), (4, 3));
    }

    #[tokio::test]
    async fn chance_repeats_from_its_seed() {
        let rolls = async |seed| {
            let plan = FaultPlan::new();
            plan.random(seed, 0.3, &["claim"]);
            (faults(&plan, "claim", 200).await, plan.injected())
        };
        let (first, injected) = rolls(5).await;
        assert_eq!(rolls(5).await.0, first);
        assert_ne!(rolls(6).await.0, first);
        assert!((30..=90).contains(&injected), "{injected} of 200 at 0.3");
    }

    #[tokio::test]
    async fn a_calm_plan_lets_everything_pass() {
        let plan = FaultPlan::new();
        plan.fail("begin", Fault::BeforeDoing, 100);
        plan.random(1, 1.0, &["begin"]);
        plan.calm();
        assert_eq!(faults(&plan, "begin", 3).await, [None; 3]);
    }

    #[test]
    #[should_panic(expected = "there is no seam call `comit`; did you mean `commit`?")]
    fn an_unknown_call_is_refused_with_the_nearest_known_one() {
        FaultPlan::new().fail("comit", Fault::Lost, 1);
    }
}
