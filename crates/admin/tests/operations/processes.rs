//! Drivers in processes of their own, one of which is killed (`kill -9`).
//!
//! The test runs this very program again, with the one test that drives, and tells it by its environment what.

use std::process::Stdio;
use std::time::Duration;

use oncebox_admin::{Admin, DriveOptions, ReplayOptions};
use oncebox_core::Store;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::{ReplayId, ReplayState};
use oncebox_store_sql::{Postgres, Sqlite};
use oncebox_testkit::eventually;
use oncebox_testkit::store::StoreFixture;
use tokio::process::{Child, Command};

use crate::rig::{PLAIN, ada, consumer, dead, effects, meant, message, park, runner};
use crate::sql::fixtures::{PostgresFixture, SqliteFixture};
use crate::sql::{PostgresPlace, SqlitePlace};

const MESSAGES: usize = 10_000;

/// The kind of store, where it is, its schema, and the replay to drive.
const WHAT: [&str; 4] = ["ONCEBOX_DRIVE_STORE", "ONCEBOX_DRIVE_PLACE", "ONCEBOX_DRIVE_SCHEMA", "ONCEBOX_DRIVE_REPLAY"];

/// Not a test: what the other processes run. Without its environment it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn drive_for_another_process() {
    let [Ok(kind), Ok(place), Ok(schema), Ok(replay)] = WHAT.map(std::env::var) else { return };
    let replay = ReplayId(replay.parse().unwrap());
    match kind.as_str() {
        "sqlite" => drive(Sqlite::open(&place).await.unwrap(), replay).await,
        _ => drive(Postgres::builder(&place).schema(&schema).connect().await.unwrap(), replay).await,
    }
}

async fn drive<S: QuarantineStore>(store: S, replay: ReplayId) {
    let options =
        DriveOptions { lease: Duration::from_secs(2), poll: Duration::from_millis(20), ..DriveOptions::default() };
    let end = Admin::new(store).drive(replay, &ada(), &options).await.unwrap();
    assert_eq!(end.state, ReplayState::Done, "{end:?}");
}

fn spawn(what: [&str; 4]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::drive_for_another_process", "--nocapture"]);
    command.envs(WHAT.into_iter().zip(what)).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// Ten thousand dead letters; the first driver's process is killed half-way, two others carry on.
async fn killed_and_succeeded<F: StoreFixture<Store: QuarantineStore>>(
    store: F::Store,
    [kind, place, schema]: [&str; 3],
) {
    let us = consumer(&store).await;
    park(&store, &(0..MESSAGES).map(|n| dead(us, message(&format!("m{n}"), "{}"))).collect::<Vec<_>>()).await;
    let admin = Admin::new(store.clone());
    let all = meant(&admin, "all").await;
    let options = ReplayOptions { canary: 20, ..PLAIN };
    let replay = admin.start_replay(&all, &options, &ada()).await.unwrap().id;
    let _runner = runner::<F>(&store, |_| false);
    let id = replay.to_string();
    let what = [kind, place, schema, id.as_str()];

    let mut first = spawn(what);
    eventually("half are revived", async || {
        assert!(first.try_wait().unwrap().is_none(), "the first driver ended by itself");
        admin.show_replay(replay).await.unwrap().revived >= MESSAGES as u64 / 2
    })
    .await;
    first.kill().await.unwrap();
    let half = admin.show_replay(replay).await.unwrap();
    assert_eq!(half.state, ReplayState::Running, "it was killed in the midst of it: {half:?}");

    let mut others = [spawn(what), spawn(what)];
    for other in &mut others {
        assert!(other.wait().await.unwrap().success());
    }
    let end = admin.show_replay(replay).await.unwrap();
    assert_eq!((end.state, end.done, end.failed), (ReplayState::Done, MESSAGES as u64, 0), "{end:?}");
    let effects = effects::<F>(&store).await;
    assert_eq!(effects.len(), MESSAGES);
    assert!(effects.values().all(|times| *times == 1), "a message was applied twice");
    assert!(store.capabilities().shared);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_driver_process_is_succeeded_by_two_others_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    place.run("create table effects (n integer primary key, id text)").await;
    killed_and_succeeded::<SqliteFixture>(store, ["sqlite", &place.path(), "-"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_driver_process_is_succeeded_by_two_others_on_postgres() {
    let test = "processes::a_killed_driver_process_is_succeeded_by_two_others_on_postgres";
    let Some(place) = PostgresPlace::or_skip(test) else { return };
    let store = place.open().await;
    place.run("create table effects (n bigserial, id text)").await;
    killed_and_succeeded::<PostgresFixture>(store, ["postgres", &place.url, &place.schema]).await;
}
