//! Mistakes: a clear sentence, and nothing changed.

use oncebox_admin::{Actor, AfterEdit, Error, Filter, ReplayOptions};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::ReplayId;
use oncebox_testkit::store::{Setup, StoreFixture};

use crate::rig::{DRIVE, PLAIN, ada, admin, consumer, dead, meant, message, park, rows, verbs};

/// Each mistake is told in one sentence, and the store is as it was.
pub(crate) async fn mistakes_are_told_and_change_nothing<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    park(store, &[dead(us, message("m1", "{}"))]).await;
    let before = rows(store, us).await;
    let row = before[0].row;
    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    let ada = ada();
    let nobody = ReplayId(4711);
    let options = |change: fn(&mut ReplayOptions)| {
        let mut options = PLAIN;
        change(&mut options);
        options
    };
    let cases: Vec<(Error, &str)> = vec![
        (Filter::parse("tipe = x").unwrap_err().into(), "cannot read the filter at column 1: there is no field `tipe`"),
        (
            admin.meant("invoice", Filter::all()).await.unwrap_err(),
            "there is no consumer \"invoice\" in this store; it has invoices",
        ),
        (
            admin.edit(row, b"{\"amount\": }", AfterEdit::Replay, &ada).await.unwrap_err(),
            "the new payload is not valid JSON (line 1, column 12)",
        ),
        (admin.edit(row + 99, b"{}", AfterEdit::Stay, &ada).await.unwrap_err(), "there is no parked message"),
        (admin.show(row + 99).await.unwrap_err(), "there is no parked message"),
        (admin.show_replay(nobody).await.unwrap_err(), "there is no replay 4711; list the replays"),
        (admin.pause_replay(nobody, &ada).await.unwrap_err(), "there is no replay 4711"),
        (admin.resume_replay(nobody, &ada).await.unwrap_err(), "there is no replay 4711"),
        (admin.cancel_replay(nobody, &ada).await.unwrap_err(), "there is no replay 4711"),
        (admin.drive(nobody, &ada, &DRIVE).await.unwrap_err(), "there is no replay 4711"),
        (
            admin.start_replay(&all, &options(|options| options.rate = Some(0)), &ada).await.unwrap_err(),
            "cannot replay with a rate of 0",
        ),
        (
            admin.start_replay(&all, &options(|options| options.stop_permille = 1001), &ada).await.unwrap_err(),
            "cannot replay with a stop ratio above one",
        ),
        (
            admin.start_replay(&meant(&admin, "type = no.such").await, &PLAIN, &ada).await.unwrap_err(),
            "none of the 0 messages that the filter means would run",
        ),
        (admin.note(&all, Some(&"x".repeat(1001)), &ada).await.unwrap_err(), "at most 1000 are kept"),
        (Actor::new("", "why").unwrap_err(), "cannot act under this name: it is empty"),
        (Actor::new("ada", "a\nb").unwrap_err(), "cannot act under this reason: it holds a control character"),
    ];
    for (error, says) in cases {
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(rows(store, us).await, before);
    assert!(verbs(&admin).await.is_empty());
    assert!(admin.list_replays(None, 10).await.unwrap().is_empty());
    assert_eq!(admin.consumers().await.unwrap().iter().filter(|known| known.name.as_str() != "*").count(), 1);
}

/// Neither an error nor `Debug` shows what a message holds.
pub(crate) async fn payloads_and_secrets_stay_out_of_errors_and_debug<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let mut secret = message("m1", r#"{"card":"CANARY-payload"}"#);
    secret.headers.add("authorization", "CANARY-header").unwrap();
    park(store, &[dead(us, secret)]).await;
    let row = rows(store, us).await[0].row;
    let admin = admin(&setup);
    let meant = meant(&admin, "payload.card").await;
    let broken = admin.edit(row, br#"{"card":"CANARY-edit" x}"#, AfterEdit::Stay, &ada()).await.unwrap_err();
    let edited = admin.edit(row, br#"{"card":"CANARY-edit"}"#, AfterEdit::Stay, &ada()).await.unwrap();
    let plan = admin.plan(&meant, false).await.unwrap();
    let shown = format!(
        "{broken} {broken:?} {edited:?} {plan:?} {meant:?} {:?} {:?} {:?} {:?} {admin:?}",
        admin.show(row).await.unwrap(),
        admin.list(&meant, 0, 10).await.unwrap(),
        admin.audit(None, 10).await.unwrap(),
        rows(store, us).await,
    );
    assert!(!shown.contains("CANARY"), "{shown}");
}
