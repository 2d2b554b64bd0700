//! One message, one effect.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::claim::Claim;
use oncebox::memory::MemorySource;
use oncebox::versions::Standing;

use oncebox::store::{Inbox, Session, Store, Transaction};
use oncebox::{
    ClaimRequest, Class, ConsumerName, Content, Context, Ended, Fingerprinter, HookRuns, KeyStrategy, Message, Outcome,
    OutcomeKind, Scope,
};
use oncebox_testkit::store::Setup;

use super::rig::*;

pub(crate) async fn duplicate_delivery_runs_the_handler_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    // Much later, in another run of the process, the same message again.
    source.send(note("1", "a"));
    let seen = run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    assert_eq!((seen.handled, seen.transport_duplicates, seen.failures), (0, 1, 0));
    assert_eq!(source.acknowledged(), 2);
}

pub(crate) async fn thirty_two_duplicates_at_the_same_instant_run_the_handler_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..32).map(|_| note("1", "a")));
    let one_by_one = consumer("c", &setup.store, source.clone())
        .on("noted", write::<F>)
        .lanes(32)
        .bounds(|bounds| bounds.batch_messages_max = 1);
    let seen = run_dry(one_by_one, &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    assert_eq!((seen.handled, seen.transport_duplicates), (1, 31));
}

pub(crate) async fn the_same_key_three_times_in_one_batch_runs_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "b"), note("1", "a"), note("1", "a")]);
    let one_lane = consumer("c", &setup.store, source.clone()).on("noted", write::<F>).lanes(1);
    let seen = run_dry(one_lane, &source).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    assert_eq!((seen.handled, seen.transport_duplicates), (2, 2));
}

pub(crate) async fn a_duplicate_gets_the_stored_outcome<F: EngineFixture>(setup: Setup<F>) {
    async fn receipt<F: EngineFixture>(_: Context<F::Store>, note: Note) -> oncebox::Result<Outcome> {
        Outcome::applied().with_json(&format!("receipt for {}", note.text))
    }
    let source = MemorySource::new();
    let (said, heard) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..2 {
        let said = said.clone();
        let hooked = consumer("c", &setup.store, source.clone()).on("noted", receipt::<F>).after_commit(
            HookRuns::AlsoOnDuplicates,
            move |_, outcome| {
                said.send(outcome).unwrap();
                async {}
            },
        );
        source.send(note("1", "a"));
        run_dry(hooked, &source).await;
    }
    let mut heard = heard;
    let (first, second) = (heard.recv().await.unwrap(), heard.recv().await.unwrap());
    assert_eq!(first, second, "the mark is not part of the outcome");
    assert_eq!(second.json::<String>().unwrap(), "receipt for a");
    assert!(!first.is_replayed() && second.is_replayed());
}

pub(crate) async fn distinct_messages_both_run<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    // The same text, said twice on purpose.
    source.send_all([note("1", "a"), note("2", "a")]);
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a", "a"]);
}

pub(crate) async fn another_payload_under_the_same_key_is_a_conflict_and_is_not_dropped<F: EngineFixture>(
    setup: Setup<F>,
) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "b"), note("2", "c")]);
    let one_lane = consumer("c", &setup.store, source.clone()).on("noted", write::<F>).lanes(1);
    let seen = run_dry(one_lane, &source).await;
    assert_eq!(effects(&setup).await, ["a", "c"]);
    assert_eq!((seen.handled, seen.transport_duplicates, seen.conflicts, seen.dead), (2, 0, 1, 1));
    let kept = only_parked(&setup).await;
    assert_eq!((kept.id.as_str(), kept.state, kept.class), ("1", DEAD, Some(Class::Permanent)), "it is kept");
    assert_eq!(kept.cause, "permanent/noted/conflict");
}

pub(crate) async fn a_business_duplicate_is_told_apart_from_a_transport_duplicate<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    // The same intent under another id, then the first message again.
    source.send_all([note("1", "a"), note("2", "a"), note("1", "a")]);
    let by_text = consumer("c", &setup.store, source.clone())
        .on("noted", write::<F>)
        .key(KeyStrategy::template("note:{text}").unwrap())
        .lanes(1);
    let seen = run_dry(by_text, &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    assert_eq!((seen.handled, seen.business_duplicates, seen.transport_duplicates), (1, 1, 1));
}

pub(crate) async fn a_business_key_claimed_beside_the_message_id_says_which_kind_hit<F: EngineFixture>(
    setup: Setup<F>,
) {
    let source = MemorySource::new();
    let both = || {
        consumer("c", &setup.store, source.clone())
            .on("noted", write::<F>)
            .business_key(KeyStrategy::template("note:{text}").unwrap())
            .lanes(1)
    };
    source.send_all([note("1", "a"), note("2", "a"), note("1", "a")]);
    let seen = run_dry(both(), &source).await;
    assert_eq!((seen.handled, seen.business_duplicates, seen.transport_duplicates), (1, 1, 1));
    // The business duplicate left a record of its own: its redelivery is a transport duplicate.
    source.send(note("2", "a"));
    let seen = run_dry(both(), &source).await;
    assert_eq!((seen.business_duplicates, seen.transport_duplicates), (0, 1));
    assert_eq!(effects(&setup).await, ["a"]);
    // One id with two intents is a conflict and leaves nothing claimed behind.
    source.send(note("1", "b"));
    assert_eq!(run_dry(both(), &source).await.conflicts, 1);
    assert_eq!(states(&setup).await, [("1".to_owned(), DEAD)]);
    source.send(note("4", "b"));
    assert_eq!(run_dry(both(), &source).await.handled, 1);
    assert_eq!(effects(&setup).await, ["a", "b"]);
}

pub(crate) async fn each_consumer_has_its_own_record<F: EngineFixture>(setup: Setup<F>) {
    for name in ["billing", "shipping"] {
        let source = MemorySource::new();
        source.send_all([note("1", name), note("1", name)]);
        run_dry(consumer(name, &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    }
    assert_eq!(effects(&setup).await, ["billing", "shipping"]);
}

pub(crate) async fn consumers_with_global_keys_share_their_records<F: EngineFixture>(setup: Setup<F>) {
    for name in ["one", "other"] {
        let source = MemorySource::new();
        source.send(note("1", "a"));
        let global = consumer(name, &setup.store, source.clone()).on("noted", write::<F>).scope(Scope::Global);
        run_dry(global, &source).await;
    }
    assert_eq!(effects(&setup).await, ["a"]);
}

pub(crate) async fn a_naturally_idempotent_handler_skips_the_inbox<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "a"), note("1", "b")]);
    let set = consumer("c", &setup.store, source.clone()).on_idempotent("noted", write::<F>);
    let seen = run_dry(set, &source).await;
    // This handler is not idempotent, so that each run can be seen: no claim stopped any of them.
    assert_eq!(effects(&setup).await, ["a", "a", "b"]);
    assert_eq!((seen.handled, seen.conflicts), (3, 0));
}

pub(crate) async fn a_version_is_written_by_one_call<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    // Sent as 1, 3, 2, 1, 2, 3: the first 3 is too early, and everything that comes late is told so.
    for (id, version) in [1, 3, 2, 1, 2, 3].into_iter().enumerate() {
        source.send(note(&id.to_string(), &version.to_string()));
    }
    let said: Arc<Mutex<Vec<Standing>>> = Arc::default();
    let saying = Arc::clone(&said);
    let versioned = consumer("c", &setup.store, source.clone())
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let said = Arc::clone(&saying);
            async move {
                let standing = ctx.advance("order-1", note.text.parse()?).await?;
                said.lock().unwrap().push(standing);
                if standing == Standing::Next {
                    F::write_effect(ctx.db(), &note.text).await?;
                }
                Ok(Outcome::applied())
            }
        })
        .lanes(1);
    run_dry(versioned, &source).await;
    assert_eq!(effects(&setup).await, ["1", "2", "3"]);
    use Standing::{Gap, Next, Same, Stale};
    assert_eq!(*said.lock().unwrap(), [Next, Gap, Next, Stale, Same, Next]);
}

pub(crate) async fn an_operation_is_applied_once_to_an_entity<F: EngineFixture>(setup: Setup<F>) {
    let fresh = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&fresh);
    let source = MemorySource::new();
    // Three messages, two of which ask for the same operation on the same account.
    source.send_all([note("1", "op-1"), note("2", "op-1"), note("3", "op-2")]);
    let credit = consumer("c", &setup.store, source.clone()).on("noted", move |ctx, note| {
        let fresh = Arc::clone(&counted);
        async move {
            let (mut ctx, note): (Context<F::Store>, Note) = (ctx, note);
            if ctx.apply_once("account-7", &note.text).await? == Claim::Fresh {
                F::write_effect(ctx.db(), &note.text).await?;
                fresh.fetch_add(1, SeqCst);
            }
            Ok(Outcome::of(OutcomeKind::Applied))
        }
    });
    run_dry(credit.lanes(1), &source).await;
    assert_eq!(effects(&setup).await, ["op-1", "op-2"]);
    assert_eq!(fresh.load(SeqCst), 2);
}

/// A business key that reads like the key of some message is not that message's key.
pub(crate) async fn a_business_key_never_meets_the_key_of_a_message<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let business = || {
        let both = consumer("c", &setup.store, source.clone()).on("noted", write::<F>);
        both.business_key(KeyStrategy::template("pay{text}").unwrap()).lanes(1)
    };
    // As parts, source and id of the first are what the template makes of the second.
    source.send(note("7", "x").with_source("pay"));
    run_dry(business(), &source).await;
    source.send(note("8", "7").with_source("pay"));
    let seen = run_dry(business(), &source).await;
    assert_eq!((seen.handled, seen.business_duplicates, seen.conflicts), (1, 0, 0));
    // And the other way round.
    source.send(note("9", "10").with_source("pay"));
    run_dry(business(), &source).await;
    source.send(note("10", "11").with_source("pay"));
    run_dry(business(), &source).await;
    assert_eq!(effects(&setup).await, ["10", "11", "7", "x"]);
}

/// Without ids, the same content under another order key is another message, and a null payload is not an empty one.
pub(crate) async fn equal_contents_under_two_order_keys_are_two_messages<F: EngineFixture>(setup: Setup<F>) {
    async fn tell<F: EngineFixture>(mut ctx: Context<F::Store>, message: Message) -> oncebox::Result<Outcome> {
        let what = if message.payload_is_null() { "deleted" } else { "said" };
        let key = message.order_key.clone().unwrap_or_default();
        F::write_effect(ctx.db(), &format!("{what} {key}")).await?;
        Ok(Outcome::applied())
    }
    let source = MemorySource::new();
    let by_content = || {
        let key = KeyStrategy::ContentHash(Content::default());
        consumer("c", &setup.store, source.clone()).on_raw("noted", tell::<F>).key(key)
    };
    let said = |key: &str| {
        let mut message = Message::new("noted").with_order_key(key);
        message.id = None;
        message
    };
    let all = || [said("a"), said("b"), said("a").with_null_payload(), said("b").with_null_payload()];
    source.send_all(all().into_iter().chain(all()));
    let seen = run_dry(by_content(), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates), (4, 4));
    assert_eq!(effects(&setup).await, ["deleted a", "deleted b", "said a", "said b"]);
}

/// Records of the version that hashed less are found, and what it took for one message is told apart from now on.
pub(crate) async fn the_content_hash_of_before_is_bridged_by_itself<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let note = |key: &str, text: &str| {
        let mut message = note("1", text).with_order_key(key);
        message.id = None;
        message
    };
    let now = KeyStrategy::ContentHash(Content::default());
    let hashing = |key: KeyStrategy| consumer("c", &setup.store, source.clone()).on("noted", write::<F>).key(key);
    // As that version did it: records, and nothing kept with the name.
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    for text in ["1", "2"] {
        let message = note("a", text);
        let key = KeyStrategy::ContentHashV1(Content::default()).key(&message, None).unwrap();
        let fingerprint = Fingerprinter::default().fingerprint(&message);
        let request = ClaimRequest { consumer, key, fingerprint, id_hash: None };
        assert_eq!(tx.claim(&[request]).await.unwrap(), [Claim::Fresh]);
        F::write_effect(tx.db(), text).await.unwrap();
    }
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    source.send_all([note("a", "1"), note("a", "2"), note("a", "3"), note("b", "3"), note("b", "3")]);
    let seen = run_dry(hashing(now.clone()), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates), (2, 3));
    source.send_all([note("a", "1"), note("a", "3"), note("b", "3"), note("c", "3")]);
    let seen = run_dry(hashing(now), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates), (1, 3));
    assert_eq!(effects(&setup).await, ["1", "2", "3", "3", "3"]);
}
