//! After-commit hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use oncebox::memory::MemorySource;

use oncebox::{Context, HookRuns, Outcome};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;

use super::rig::*;

pub(crate) async fn hooks_run_after_the_commit_and_not_for_a_failure<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let (fail_once, found) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (store, result) = (setup.store.clone(), Arc::clone(&found));
    let hooked =
        consumer("c", &setup.store, source.clone()).on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let (fail, store, found) = (Arc::clone(&fail_once), store.clone(), Arc::clone(&result));
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                ctx.after_commit(async move {
                    // What it sees from outside is what was committed when it ran.
                    found.store(F::effects(&store).await.len(), SeqCst);
                });
                if fail.swap(false, SeqCst) { Err(refuse()) } else { Ok(Outcome::applied()) }
            }
        });
    let stats = hooked.stats();
    let done = eventually("the hook ran", async || found.load(SeqCst) != usize::MAX);
    hooked.run(done).await.unwrap();
    assert_eq!(found.load(SeqCst), 1, "it ran once, and after the commit");
    assert_eq!((stats.snapshot().failures, stats.snapshot().handled), (1, 1));
}

pub(crate) async fn a_hook_that_asks_for_it_runs_again_on_a_duplicate<F: EngineFixture>(setup: Setup<F>) {
    let runs = [(HookRuns::Once, 1), (HookRuns::AlsoOnDuplicates, 3)];
    for (n, (asked, expected)) in runs.into_iter().enumerate() {
        let source = MemorySource::new();
        source.send_all((0..3).map(|_| note(&n.to_string(), "a")));
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ran);
        let hooked = consumer("c", &setup.store, source.clone())
            .on("noted", write::<F>)
            .after_commit(asked, move |_, _| {
                counted.fetch_add(1, SeqCst);
                async {}
            })
            .lanes(1);
        run_dry(hooked, &source).await;
        assert_eq!(ran.load(SeqCst), expected);
    }
}

pub(crate) async fn a_hook_that_panics_before_it_begins_harms_nobody<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "b")]);
    let hooked = consumer("c", &setup.store, source.clone())
        .on("noted", write::<F>)
        .after_commit(HookRuns::Once, |message, _| {
            assert!(message.id.is_none(), "the case said so");
            async {}
        })
        .lanes(1)
        .bounds(|bounds| bounds.batch_messages_max = 1);
    let seen = run_dry(hooked, &source).await;
    assert_eq!((effects(&setup).await.len(), seen.handled), (2, 2));
}
