//! Claim, lease and fence as a state machine: workers, a queue or broker, an inbox, and what a store does with locks.
//!
//! ```text
//!  Idle ─lease─▶ Holding ─claim─▶ Claimed ─handle─▶ Handled ─settle─▶ Sealed ─commit─▶ Idle, or Committed ─ack─▶ Idle
//!                   ▲                │                  │                │
//!                   │           crash, failure, fenced: rolled back      └─answer lost─▶ Doubt
//!                   └──────────────────────── resolve: once the store is done with it ─────┘
//! ```
//!
//! A transaction whose answer was lost stays open in the store, with its locks, and commits or aborts whenever it likes.
//! A crash can come at any step. A lease can run out at any time.

use stateright::{Model, Property};

/// Who does what in which order. The default is what Oncebox does on its own queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) claims: Claims,
    pub(crate) settles: Settles,
    pub(crate) unknown: Unknown,
    /// Whether settling in the transaction checks the fence.
    pub(crate) fenced: bool,
}

/// When the key is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claims {
    /// In the transaction of the effect.
    InTransaction,
    /// In a transaction of its own, before.
    Outside,
    /// Not at all, as for handlers that are idempotent by nature.
    Never,
}

/// When the source may forget the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settles {
    /// With the commit, as a queue in the store can.
    InTransaction,
    /// After the commit, as with a broker.
    AfterCommit,
    /// Before it.
    BeforeCommit,
}

/// What a lost answer to a commit is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Waits until the store is done with the transaction, and claims again.
    LookedUp,
    /// Taken for done.
    Done,
}

/// The machine: its rules and how much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) workers: usize,
    pub(crate) messages: usize,
    pub(crate) rules: Rules,
    pub(crate) trouble: Trouble,
}

/// How often each thing may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trouble {
    pub(crate) crashes: u8,
    /// Leases that run out in hand. A lease whose holder is gone always runs out.
    pub(crate) expiries: u8,
    pub(crate) lost_answers: u8,
    pub(crate) failures: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) rows: Vec<Row>,
    pub(crate) workers: Vec<Worker>,
    trouble: Trouble,
    /// A worker committed under a fence that was no longer the row's.
    pub(crate) stale_commit: bool,
    pub(crate) seen: Seen,
}

/// A message: its row in the queue, its record in the inbox, its effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    leased_to: Option<usize>,
    fence: u8,
    /// Whose open transaction has settled it.
    row_lock: Option<Owner>,
    pub(crate) settled: bool,
    /// Whose open transaction has claimed its key.
    key_lock: Option<Owner>,
    pub(crate) recorded: bool,
    pub(crate) effects: u8,
}

/// Whose an open transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Worker(usize),
    /// The worker has gone on, or died, and the store has not ended it.
    Zombie(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    step: Step,
    message: usize,
    fence: u8,
    /// Its claim found the message done: the transaction only settles.
    duplicate: bool,
    /// A transaction whose answer was lost and that the store is not done with.
    zombie: Option<Zombie>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Zombie {
    message: usize,
    fence: u8,
    duplicate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Holding,
    Claimed,
    Handled,
    Sealed,
    Committed,
    Doubt,
}

/// What has happened on the way, so that a check that never sees it can't pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) duplicate: bool,
    pub(crate) fenced: bool,
    pub(crate) late_commit: bool,
    pub(crate) late_abort: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Lease(usize, usize),
    Expire(usize),
    /// The next thing that a worker does.
    Go(usize),
    Fail(usize),
    Crash(usize),
    LoseAnswer(usize),
    ZombieCommits(usize),
    ZombieAborts(usize),
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let idle = Worker { step: Step::Idle, message: 0, fence: 0, duplicate: false, zombie: None };
        vec![State {
            rows: vec![Row::default(); self.messages],
            workers: vec![idle; self.workers],
            trouble: self.trouble,
            stale_commit: false,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (m, row) in state.rows.iter().enumerate() {
            if row.leased_to.is_none() && !row.settled && row.row_lock.is_none() {
                let idle = (0..self.workers).filter(|&w| state.workers[w].step == Step::Idle);
                actions.extend(idle.map(|w| Action::Lease(w, m)));
            }
            if row.leased_to.is_some_and(|w| !state.workers[w].holds(m, row.fence) || state.trouble.expiries > 0) {
                actions.push(Action::Expire(m));
            }
        }
        for (w, worker) in state.workers.iter().enumerate() {
            if worker.zombie.is_some() {
                actions.extend([Action::ZombieCommits(w), Action::ZombieAborts(w)]);
            }
            if worker.step == Step::Idle {
                continue;
            }
            actions.push(Action::Go(w));
            if state.trouble.crashes > 0 {
                actions.push(Action::Crash(w));
            }
            if state.trouble.failures > 0 && worker.step == Step::Claimed && !worker.duplicate {
                actions.push(Action::Fail(w));
            }
            if state.trouble.lost_answers > 0 && worker.step == Step::Sealed && worker.zombie.is_none() {
                actions.push(Action::LoseAnswer(w));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Lease(w, m) => {
                let row = &mut state.rows[m];
                row.leased_to = Some(w);
                row.fence += 1;
                let fence = row.fence;
                let worker = &mut state.workers[w];
                *worker = Worker { step: Step::Holding, message: m, fence, duplicate: false, ..worker.clone() };
            }
            Action::Expire(m) => {
                let row = &mut state.rows[m];
                let owner = row.leased_to.take()?;
                if state.workers[owner].holds(m, row.fence) {
                    state.trouble.expiries -= 1;
                }
            }
            Action::Go(w) => return self.go(state, w),
            Action::Fail(w) => {
                state.trouble.failures -= 1;
                state.roll_back(w);
                state.release(w);
            }
            Action::Crash(w) => {
                state.trouble.crashes -= 1;
                state.roll_back(w);
                state.workers[w].step = Step::Idle;
            }
            Action::LoseAnswer(w) => {
                state.trouble.lost_answers -= 1;
                let worker = &mut state.workers[w];
                let Worker { message, fence, duplicate, .. } = *worker;
                worker.zombie = Some(Zombie { message, fence, duplicate });
                worker.step = Step::Doubt;
                let row = &mut state.rows[message];
                for lock in [&mut row.key_lock, &mut row.row_lock].into_iter().flatten() {
                    if *lock == Owner::Worker(w) {
                        *lock = Owner::Zombie(w);
                    }
                }
            }
            Action::ZombieCommits(w) => {
                let zombie = state.workers[w].zombie.take()?;
                state.seen.late_commit = true;
                self.commit(&mut state, Owner::Zombie(w), zombie);
            }
            Action::ZombieAborts(w) => {
                let zombie = state.workers[w].zombie.take()?;
                state.seen.late_abort = true;
                state.unlock(Owner::Zombie(w), zombie.message);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no effect twice", |_, state| state.rows.iter().all(|row| row.effects <= 1)),
            Property::<Self>::always("settled implies effect", |_, state| {
                state.rows.iter().all(|row| !row.settled || row.effects > 0)
            }),
            Property::<Self>::always("a record implies an effect", |_, state| {
                state.rows.iter().all(|row| !row.recorded || row.effects > 0)
            }),
            Property::<Self>::always("only the holder commits", |_, state| !state.stale_commit),
            Property::<Self>::eventually("all are settled", |_, state| state.rows.iter().all(|row| row.settled)),
            Property::<Self>::sometimes("a duplicate is found", |_, state| state.seen.duplicate),
            Property::<Self>::sometimes("a stale worker is fenced", |_, state| state.seen.fenced),
            Property::<Self>::sometimes("a lost commit goes through", |_, state| state.seen.late_commit),
            Property::<Self>::sometimes("a lost commit does not", |_, state| state.seen.late_abort),
        ]
    }
}

impl Machine {
    /// What a worker does next; `None` while it waits for a lock or for the store.
    fn go(&self, mut state: State, w: usize) -> Option<State> {
        let rules = self.rules;
        let Worker { step, message: m, fence, duplicate, zombie } = state.workers[w].clone();
        let next = match step {
            Step::Idle => return None,
            Step::Holding => {
                if rules.settles == Settles::BeforeCommit && state.rows[m].fence == fence {
                    state.rows[m].settled = true;
                }
                if rules.claims != Claims::Never {
                    let row = &mut state.rows[m];
                    // Someone else's open claim: the insert waits for its fate.
                    if row.key_lock.is_some() {
                        return None;
                    }
                    state.workers[w].duplicate = row.recorded;
                    state.seen.duplicate |= row.recorded;
                    match (row.recorded, rules.claims) {
                        (false, Claims::Outside) => row.recorded = true,
                        (false, _) => row.key_lock = Some(Owner::Worker(w)),
                        (true, _) => {}
                    }
                }
                Step::Claimed
            }
            Step::Claimed => Step::Handled,
            Step::Handled => {
                if rules.settles == Settles::InTransaction {
                    let row = &mut state.rows[m];
                    // The row is locked by someone else's open transaction: the statement waits.
                    if row.row_lock.is_some() {
                        return None;
                    }
                    if row.settled || (rules.fenced && row.fence != fence) {
                        state.seen.fenced = true;
                        state.roll_back(w);
                        state.workers[w].step = Step::Idle;
                        return Some(state);
                    }
                    row.row_lock = Some(Owner::Worker(w));
                }
                Step::Sealed
            }
            Step::Sealed => {
                self.commit(&mut state, Owner::Worker(w), Zombie { message: m, fence, duplicate });
                if rules.settles == Settles::AfterCommit { Step::Committed } else { Step::Idle }
            }
            Step::Doubt => match rules.unknown {
                Unknown::LookedUp if zombie.is_some() => return None,
                Unknown::LookedUp => Step::Holding,
                Unknown::Done => Step::Committed,
            },
            Step::Committed => {
                // A broker ignores the acknowledgement of a delivery that it took back.
                if state.rows[m].fence == fence {
                    state.rows[m].settled = true;
                }
                Step::Idle
            }
        };
        state.workers[w].step = next;
        Some(state)
    }

    /// The store commits a transaction.
    fn commit(&self, state: &mut State, owner: Owner, tx: Zombie) {
        let row = &mut state.rows[tx.message];
        if self.rules.settles == Settles::InTransaction {
            state.stale_commit |= row.fence != tx.fence;
            row.settled = true;
        }
        if !tx.duplicate {
            row.effects += 1;
            row.recorded |= self.rules.claims != Claims::Never;
        }
        state.unlock(owner, tx.message);
    }
}

impl State {
    fn unlock(&mut self, owner: Owner, m: usize) {
        let row = &mut self.rows[m];
        row.key_lock = row.key_lock.filter(|lock| *lock != owner);
        row.row_lock = row.row_lock.filter(|lock| *lock != owner);
    }

    /// Ends a worker's open transaction; one whose answer was lost is not its any more.
    fn roll_back(&mut self, w: usize) {
        self.unlock(Owner::Worker(w), self.workers[w].message);
    }

    fn release(&mut self, w: usize) {
        let Worker { message, fence, .. } = self.workers[w];
        let row = &mut self.rows[message];
        if row.fence == fence {
            row.leased_to = None;
        }
        self.workers[w].step = Step::Idle;
    }
}

impl Worker {
    fn holds(&self, message: usize, fence: u8) -> bool {
        self.step != Step::Idle && self.message == message && self.fence == fence
    }
}
