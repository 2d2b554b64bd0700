//! Proving your own handlers: what your tables hold after duplicates and crashes must equal what they hold after each
//! message came once.
//!
//! Implement [`Subject`] for your consumer and run every case with [`handler_suite!`](crate::handler_suite). The kit
//! brings the deliveries and the crashes; you bring the store, two messages, and a look at your tables. Crashes are
//! made at crash points, which belong to the whole process, so the cases run one after another; give them a test file
//! of their own.

mod cases;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::memory::MemorySource;
use oncebox_core::{Message, Source, Store};
use tokio::sync::Mutex;

pub use cases::*;

use crate::clock::ManualClock;
use crate::crash;
use crate::eventually::eventually;
use crate::faults::{FaultPlan, FaultySource};

/// When to stop consuming.
pub type Until = Pin<Box<dyn Future<Output = ()>>>;

/// A consumer with its handlers, to be proven.
pub trait Subject: Send + Sync + 'static {
    /// Where it keeps its records.
    type Store: Store;
    /// What your business tables hold; compared after each case.
    type State: PartialEq + fmt::Debug + Send;

    /// An empty store with empty business tables, shared with nobody.
    fn fresh(&self) -> impl Future<Output = Self::Store> + Send;

    /// A message that has an effect. The same one, with the same id, each time it is asked for.
    fn message(&self) -> Message;

    /// Another message, which has an effect of its own. The same one each time.
    fn another(&self) -> Message;

    /// The intent of [`message`](Self::message) under another id, if your consumer is to recognise it (by a business
    /// key or a named constraint).
    fn same_intent(&self) -> Option<Message> {
        None
    }

    /// Runs your consumer on `source`, as your service does, until `until` resolves.
    fn consume<Src: Source<Self::Store>>(
        &self,
        store: Self::Store,
        source: Src,
        until: Until,
    ) -> impl Future<Output = ()>;

    /// What your business tables hold now.
    fn state(&self, store: &Self::Store) -> impl Future<Output = Self::State> + Send;
}

/// Runs every case over a [`Subject`], as tests named after the cases in a module `handler`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! handler_suite {
    ($subject:expr) => {
        $crate::handler_suite! { @ $subject, [
            a_message_has_an_effect,
            a_sequential_duplicate_changes_nothing,
            concurrent_duplicates_take_effect_once,
            distinct_messages_both_take_effect,
            a_crash_after_the_commit_and_before_the_ack_heals,
            a_crash_before_the_commit_heals,
            a_crash_after_the_claim_heals,
            a_crash_after_the_handler_heals,
            the_same_intent_under_another_id_changes_nothing,
        ] }
    };
    (@ $subject:expr, [$($case:ident,)+]) => {
        mod handler {
            #[allow(unused_imports, reason = "the subject may be named by its full path")]
            use super::*;

            $(
                #[::tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    $crate::handler::run($subject, $crate::handler::$case).await;
                }
            )+
        }
    };
}

/// How long a delivery stays with its consumer, by the manual clock.
const LEASE: Duration = Duration::from_secs(30);

/// One case's store, source and subject.
#[derive(Debug)]
pub struct Trial<S: Subject> {
    subject: S,
    store: S::Store,
    source: MemorySource,
    clock: Arc<ManualClock>,
    faults: FaultPlan,
}

/// Runs one case, alone in its process. The suite's macro calls this.
pub async fn run<S: Subject, Case: Future<Output = ()>>(subject: S, case: impl FnOnce(Trial<S>) -> Case) {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let _alone = ALONE.lock().await;
    crash::disarm();
    case(Trial::new(subject).await).await;
    crash::disarm();
}

impl<S: Subject> Trial<S> {
    async fn new(subject: S) -> Self {
        let clock = Arc::new(ManualClock::new());
        let source = MemorySource::with_clock(Arc::clone(&clock) as _, LEASE);
        Self { store: subject.fresh().await, source, clock, faults: FaultPlan::new(), subject }
    }

    /// What the tables hold when each of `messages` came once, to a store of its own.
    async fn after_once(&self, messages: &[Message]) -> S::State {
        let store = self.subject.fresh().await;
        let source = MemorySource::new();
        for message in messages {
            source.send(message.clone());
            let empty = source.clone();
            let until = Box::pin(async move { eventually("the source is empty", async || empty.backlog() == 0).await });
            self.subject.consume(store.clone(), source.clone(), until).await;
        }
        self.subject.state(&store).await
    }

    /// Consumes until nothing is left. Leases and delays end as soon as they are in the way.
    async fn consume_all(&self) {
        let (source, clock) = (self.source.clone(), Arc::clone(&self.clock));
        let until = Box::pin(async move {
            eventually("the source is empty", async || {
                clock.advance(Duration::from_secs(5));
                source.backlog() == 0
            })
            .await;
        });
        let source = FaultySource::new(self.source.clone(), self.faults.clone());
        self.subject.consume(self.store.clone(), source, until).await;
    }

    async fn state(&self) -> S::State {
        self.subject.state(&self.store).await
    }

    /// Fails unless the tables hold what they hold when each of `messages` came once.
    async fn assert_as_if_once(&self, messages: &[Message]) {
        let expected = self.after_once(messages).await;
        assert_eq!(self.state().await, expected, "left: what the tables hold; right: what they should hold");
    }
}
