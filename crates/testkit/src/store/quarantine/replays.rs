//! Replays: stored whole, held by one.

use oncebox_core::quarantine::{Quarantine, QuarantineStore};
use oncebox_core::replay::{Base, Counts, Hold, OnTheirWay, Replay, ReplayId, ReplayState, Replays};
use oncebox_core::{ConsumerId, StoreErrorKind, Timestamp, Transaction};

use super::steps::{
    LEASE, LEASE_AND_MORE, apply, dead, dead_in_order, discard, fail, far_future, lease, leased_texts, park, revive,
    spec,
};
use crate::store::steps::{assert_kind, begin, commit, consumer, key};
use crate::store::{Setup, StoreFixture};

async fn create<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> ReplayId {
    let mut tx = begin(store).await;
    let id = tx.create_replay(&spec(consumer)).await.expect("a replay can be created");
    commit(tx).await;
    id
}

async fn read<S: QuarantineStore>(store: &S, id: ReplayId) -> Replay {
    let mut tx = begin(store).await;
    let replay = tx.replay(id).await.expect("a replay can be read").expect("it is there");
    tx.rollback().await;
    replay
}

async fn hold<S: QuarantineStore>(store: &S, id: ReplayId) -> Hold {
    let mut tx = begin(store).await;
    let hold = tx.hold_replay(id, None, LEASE).await.expect("a replay can be asked for");
    commit(tx).await;
    hold
}

async fn on_their_way<S: QuarantineStore>(store: &S, consumer: ConsumerId, id: ReplayId) -> OnTheirWay {
    let mut tx = begin(store).await;
    let found = tx.on_their_way(consumer, id).await.expect("messages can be looked for");
    tx.rollback().await;
    found
}

/// A replay comes back as it was asked for and as it was saved.
pub async fn a_replay_comes_back_as_it_was_saved<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let id = create(store, consumer).await;
    let mut replay = read(store, id).await;
    assert_eq!((&replay.spec, replay.state, replay.cursor), (&spec(consumer), ReplayState::Running, 0));
    assert_eq!((replay.counts, replay.canary_passed, replay.stop_reason.clone()), (Counts::default(), false, None));
    replay.state = ReplayState::Stopped;
    replay.stop_reason = Some("its canary failed".to_owned());
    replay.cursor = 12;
    replay.counts = Counts { revived: 5, refused: 4, held_up: 3, moving: 2, withdrawn: 0 };
    replay.canary_passed = true;
    replay.base = Base { revived: 3, done: 2, failed: 1 };
    let mut tx = begin(store).await;
    tx.replay(id).await.expect("a replay can be locked");
    tx.save_replay(&replay).await.expect("a replay can be saved");
    commit(tx).await;
    let saved = read(store, id).await;
    replay.changed_at = saved.changed_at;
    assert_eq!(saved, replay);
    let other = create(store, consumer).await;
    let mut tx = begin(store).await;
    let newest = tx.replays(None, 10).await.expect("replays can be listed");
    assert_eq!(newest.iter().map(|replay| replay.id).collect::<Vec<_>>(), [other, id]);
    assert_eq!(tx.replays(Some(consumer), 1).await.expect("replays can be listed").len(), 1);
    assert_eq!(tx.replays(Some(ConsumerId(999)), 9).await.expect("replays can be listed"), []);
    assert_eq!(tx.replay(ReplayId(9999)).await.expect("a replay can be looked for"), None);
    tx.rollback().await;
}

/// A replay that is not over is found, however many newer ones are.
pub async fn open_replays_are_found_behind_others<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (consumer, other) = (consumer(store, "invoices").await, consumer(store, "letters").await);
    let states = [ReplayState::Stopped, ReplayState::Paused, ReplayState::Running];
    let ended = [ReplayState::Done, ReplayState::Cancelled].into_iter().cycle().take(25);
    let mut ids = Vec::new();
    for state in states.into_iter().chain(ended) {
        let id = create(store, consumer).await;
        ids.push(id);
        let mut tx = begin(store).await;
        let mut replay = tx.replay(id).await.expect("a replay can be locked").expect("it was created");
        replay.state = state;
        tx.save_replay(&replay).await.expect("a replay can be saved");
        commit(tx).await;
    }
    let theirs = create(store, other).await;
    let mut tx = begin(store).await;
    for (of, limit, expected) in [
        (None, 10, vec![theirs, ids[2], ids[1], ids[0]]),
        (Some(consumer), 10, vec![ids[2], ids[1], ids[0]]),
        (Some(consumer), 2, vec![ids[2], ids[1]]),
    ] {
        let open = tx.open_replays(of, limit).await.expect("open replays can be listed");
        assert_eq!(open.iter().map(|replay| replay.id).collect::<Vec<_>>(), expected);
    }
    tx.rollback().await;
}

/// One holds a replay at a time; when its lease is over another takes it, and the first is fenced off.
pub async fn a_replay_is_held_by_one<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let id = create(store, consumer(store, "invoices").await).await;
    let Hold::Held(first) = hold(store, id).await else { panic!("a replay that nobody holds was refused") };
    assert!(matches!(hold(store, id).await, Hold::Busy(_)));
    setup.advance(LEASE / 2).await;
    let mut tx = begin(store).await;
    tx.hold_replay(id, Some(first.fence), LEASE).await.expect("its holder can keep hold of it");
    commit(tx).await;
    setup.advance(LEASE / 2 + LEASE / 4).await;
    assert!(matches!(hold(store, id).await, Hold::Busy(_)), "it was kept for longer");
    setup.advance(LEASE_AND_MORE).await;
    let Hold::Held(second) = hold(store, id).await else { panic!("a replay whose holder is gone was refused") };
    assert!(second.fence > first.fence);
    let mut tx = begin(store).await;
    assert_kind(tx.hold_replay(id, Some(first.fence), LEASE).await, StoreErrorKind::Fenced);
    tx.rollback().await;
    let mut tx = begin(store).await;
    tx.let_go_replay(id, first.fence).await.expect("letting go is never refused");
    commit(tx).await;
    assert!(matches!(hold(store, id).await, Hold::Busy(_)), "it was not the first one's to let go");
    let mut tx = begin(store).await;
    tx.let_go_replay(id, second.fence).await.expect("letting go is never refused");
    commit(tx).await;
    assert!(matches!(hold(store, id).await, Hold::Held(_)));
    assert_eq!(hold(store, ReplayId(9999)).await, Hold::Absent);
}

/// The messages that a replay revived are counted where they are; what is done is nowhere.
pub async fn revived_messages_are_counted_where_they_are<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let parks = [
        dead(consumer, "1"),
        dead(consumer, "2"),
        dead_in_order(consumer, "a", "3"),
        dead_in_order(consumer, "a", "4"),
        dead(consumer, "5"),
    ];
    let ids = park(store, &parks).await;
    let id = create(store, consumer).await;
    assert_eq!(revive(store, &ids[..4], Some(id)).await, [true; 4]);
    assert_eq!(on_their_way(store, consumer, id).await, OnTheirWay { live: 4, held_up: 0, failed: 0 });
    let leased = lease(store, consumer).await;
    assert_eq!(leased_texts(&leased), ["1", "2", "3"]);
    apply(store, &leased[0], &key("1"), consumer).await;
    fail(store, &leased[2]).await;
    assert_eq!(on_their_way(store, consumer, id).await, OnTheirWay { live: 1, held_up: 1, failed: 1 });
}

/// What others take from a replay is counted as withdrawn, whatever its driver saves.
pub async fn what_others_take_from_a_replay_is_withdrawn<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &["1", "2", "3"].map(|text| dead(consumer, text))).await;
    let (first, second) = (create(store, consumer).await, create(store, consumer).await);
    revive(store, &ids, Some(first)).await;
    for leased in lease(store, consumer).await {
        fail(store, &leased).await;
    }
    let driver = read(store, first).await;
    discard(store, &ids[..1]).await;
    assert_eq!(revive(store, &ids[1..2], Some(second)).await, [true]);
    let mut tx = begin(store).await;
    tx.save_replay(&driver).await.expect("a replay can be saved");
    commit(tx).await;
    assert_eq!(read(store, first).await.counts.withdrawn, 2);
    assert_eq!(read(store, second).await.counts.withdrawn, 0);
    assert_eq!(on_their_way(store, consumer, first).await, OnTheirWay { live: 0, held_up: 0, failed: 1 });
}

/// Replays that came to their end long ago go, a bounded number at a time; open ones stay, and so does one that a parked
/// message names.
pub async fn replays_that_ended_long_ago_are_removed<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let mut ended = Vec::new();
    for state in [ReplayState::Done, ReplayState::Cancelled, ReplayState::Done, ReplayState::Stopped] {
        let id = create(store, consumer).await;
        let mut tx = begin(store).await;
        let mut replay = tx.replay(id).await.expect("a replay can be locked").expect("it is there");
        replay.state = state;
        tx.save_replay(&replay).await.expect("a replay can be saved");
        commit(tx).await;
        ended.push(id);
    }
    let running = create(store, consumer).await;
    let named = ended[2];
    let rows = park(store, &[dead(consumer, "1")]).await;
    let mut tx = begin(store).await;
    tx.revive(&rows, Some(named)).await.expect("a row can be revived");
    commit(tx).await;
    let sweep = async |before, max| {
        let mut tx = begin(store).await;
        let swept = tx.sweep_replays(before, max).await.expect("replays can be removed");
        commit(tx).await;
        swept
    };
    assert_eq!(sweep(Timestamp::UNIX_EPOCH, 100).await, 0);
    assert_eq!(sweep(far_future(), 1).await, 1);
    assert_eq!(sweep(far_future(), 100).await, 1);
    let mut tx = begin(store).await;
    let left: Vec<ReplayId> =
        tx.replays(None, 10).await.expect("replays can be listed").iter().map(|replay| replay.id).collect();
    tx.rollback().await;
    assert_eq!(left, [running, ended[3], named]);
}
