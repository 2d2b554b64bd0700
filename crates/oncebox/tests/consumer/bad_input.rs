//! Bad input gets one clear error, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use oncebox::consumer::RunError;
use oncebox::memory::{MemoryReceipt, MemorySource};

use oncebox::source::SourceCapabilities;
use oncebox::{
    Class, Consumer, Delivery, KeyStrategy, Message, Outcome, Release, Source, SourceError, Store, StoreError,
};
use oncebox_testkit::store::Setup;

use super::rig::*;

/// A memory source that notes how much is received at once.
#[derive(Clone, Default)]
struct Listening {
    source: MemorySource,
    /// The most payload bytes that one call returned.
    received_bytes_max: Arc<AtomicUsize>,
}

impl<S: Store> Source<S> for Listening {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        Source::<S>::capabilities(&self.source)
    }
    async fn open(&self, store: &S) -> Result<(), SourceError> {
        self.source.open(store).await
    }
    async fn receive(
        &self,
        max: usize,
        wait: std::time::Duration,
    ) -> Result<Vec<Delivery<MemoryReceipt>>, SourceError> {
        let received = Source::<S>::receive(&self.source, max, wait).await?;
        let bytes = received.iter().map(|delivery| delivery.message.payload.len()).sum();
        self.received_bytes_max.fetch_max(bytes, SeqCst);
        Ok(received)
    }
    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&MemoryReceipt]) -> Result<(), StoreError> {
        Source::<S>::ack_in(&self.source, tx, receipts).await
    }
    async fn ack(&self, deliveries: Vec<Delivery<MemoryReceipt>>) -> Result<(), SourceError> {
        Source::<S>::ack(&self.source, deliveries).await
    }
    async fn release(&self, deliveries: Vec<Delivery<MemoryReceipt>>, release: Release) -> Result<(), SourceError> {
        Source::<S>::release(&self.source, deliveries, release).await
    }
    async fn extend(&self, receipts: &[Arc<MemoryReceipt>]) -> Result<(), SourceError> {
        Source::<S>::extend(&self.source, receipts).await
    }
}

/// Sends `bad` between two good ones; the good ones are applied, the bad one is kept, and the reason says `says`.
async fn bad_one_out<F: EngineFixture>(
    setup: Setup<F>,
    bad: Message,
    says: &str,
    change: impl FnOnce(Consumer<F::Store, MemorySource>) -> Consumer<F::Store, MemorySource>,
) {
    let source = MemorySource::new();
    source.send_all([note("1", "before"), bad, note("2", "after")]);
    let consumer = change(consumer("c", &setup.store, source.clone()).on("noted", write::<F>).lanes(1));
    let seen = run_dry(consumer, &source).await;
    assert_eq!(effects(&setup).await, ["after", "before"]);
    assert_eq!((seen.handled, seen.failures, seen.dead, seen.parked), (2, 1, 1, 0));
    let kept = only_parked(&setup).await;
    assert_eq!((kept.state, kept.class), (DEAD, Some(Class::Permanent)));
    assert!(kept.reason.contains(says), "{kept:?}");
}

pub(crate) async fn what_does_not_decode_is_named_and_not_lost<F: EngineFixture>(setup: Setup<F>) {
    let bad = note("bad", "").with_payload(r#"{"text": ["CANARY"]}"#);
    bad_one_out(setup, bad, "does not decode as Note: its JSON has another shape", |c| c).await;
}

pub(crate) async fn a_payload_over_the_cap_is_named_and_not_lost<F: EngineFixture>(setup: Setup<F>) {
    let bad = note("bad", &"CANARY".repeat(200_000));
    bad_one_out(setup, bad, "bytes; this consumer takes at most 1048576", |c| c).await;
}

pub(crate) async fn an_unknown_type_is_named_and_not_lost<F: EngineFixture>(setup: Setup<F>) {
    let mut bad = note("bad", "CANARY");
    bad.kind = "nobody.knows".to_owned();
    bad_one_out(setup, bad, "no handler takes type `nobody.knows`; this consumer takes noted", |c| c).await;
}

pub(crate) async fn a_message_without_a_key_is_named_and_not_lost<F: EngineFixture>(setup: Setup<F>) {
    let bad = Message::new("noted").with_payload(r#"{"txt": "CANARY"}"#);
    let by_text = |c: Consumer<F::Store, MemorySource>| c.key(KeyStrategy::template("note:{text}").unwrap());
    bad_one_out(setup, bad, "its payload has no field `text`", by_text).await;
}

pub(crate) async fn a_consumer_that_makes_no_sense_does_not_start<F: EngineFixture>(setup: Setup<F>) {
    let fresh = |name: &str| consumer(name, &setup.store, MemorySource::new());
    let error = |started: Result<_, RunError>| started.map(|_: oncebox::Drained| ()).unwrap_err().to_string();
    let now = || std::future::ready(());
    assert!(error(fresh("c").run(now()).await).contains("has no handler"));
    assert!(error(fresh("").on("noted", write::<F>).run(now()).await).contains("visible ASCII"));
    assert!(error(fresh("*").on("noted", write::<F>).run(now()).await).contains("may not be `*`"));
    let twice = fresh("c").on("noted", write::<F>).on("noted", write::<F>);
    assert!(error(twice.run(now()).await).contains("type `noted` has two handlers"));
    assert!(error(fresh("c").on("noted", write::<F>).lanes(0).run(now()).await).contains("lanes must be"));
}

pub(crate) async fn large_payloads_are_received_a_few_at_a_time<F: EngineFixture>(setup: Setup<F>) {
    let source = Listening::default();
    let large = "x".repeat(100_000);
    source.source.send_all((0..60).map(|n| note(&n.to_string(), &large)));
    let consumer = consumer("c", &setup.store, source.clone()).on_raw("noted", |_, _| async { Ok(Outcome::applied()) });
    let bounded = consumer.bounds(|bounds| {
        bounds.in_flight_bytes_max = 1 << 20;
        bounds.payload_bytes_max = 1 << 20;
    });
    run_until(bounded, "all are handled", async |seen| seen.handled == 60).await;
    let most = source.received_bytes_max.load(SeqCst);
    assert!(most <= 1 << 20, "{most} bytes at once");
}
