//! A fetch stays quick however much lies in the outbox: unsent, dead, or waiting behind what is set aside.
//! `ONCEBOX_TEST_OUTBOX_ROWS=1000000` measures.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]
#![allow(clippy::print_stdout, reason = "it also measures")]

mod common;

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use common::{LOCK_WAIT, PostgresPlace, SqlitePlace, begin, commit};
use oncebox_core::outbox::{Fetch, KeepSent, Outbox, Unsent};
use oncebox_core::queue::{HeldLane, LaneRequest, QueueStore, QueueTx};
use oncebox_core::{Clock, Message, Outgoing, Session, SystemClock};
use tokio::time::Instant;

/// Order keys whose first row is refused.
const KEYS: usize = 20;
const BATCH: usize = 100;

fn row(topic: &str, n: usize) -> Outgoing {
    let message = Message::new("noted").with_order_key(format!("account-{}", n % KEYS)).with_payload(n.to_string());
    Outgoing { topic: topic.to_owned(), message: message.into() }
}

fn size() -> usize {
    env::var("ONCEBOX_TEST_OUTBOX_ROWS").map_or(5_000, |rows| rows.parse().unwrap())
}

struct Relay<S: QueueStore> {
    idle: Option<S::Session>,
    lanes: Vec<HeldLane>,
}

impl<S: QueueStore> Relay<S> {
    async fn new(store: &S) -> Self {
        let queue = store.outbox().await.unwrap();
        let mut tx = begin(store).await;
        let lease = Duration::from_secs(3600);
        let request = LaneRequest { queue, owner: SystemClock.id(), lease, give_back: Vec::new() };
        let lanes = tx.hold_lanes(&request).await.unwrap().lanes;
        Self { idle: Some(commit(tx).await), lanes }
    }

    /// On one connection, as a relay does: a new one would prepare its statements first.
    async fn fetch(&mut self, without: &[&str]) -> (Vec<Unsent>, Duration) {
        let without: Vec<String> = without.iter().map(|topic| (*topic).to_owned()).collect();
        let mut tx = self.idle.take().unwrap().begin(LOCK_WAIT).await.unwrap();
        let begun = Instant::now();
        let rows = tx
            .fetch_unsent(Fetch { lanes: &self.lanes, max: BATCH, without: &without, after: &BTreeMap::new() })
            .await
            .unwrap()
            .rows;
        let took = begun.elapsed();
        self.idle = Some(commit(tx).await);
        (rows, took)
    }

    async fn end(&mut self, rows: &[Unsent]) -> Duration {
        let receipts: Vec<_> = rows.iter().map(|row| row.receipt).collect();
        let mut tx = self.idle.take().unwrap().begin(LOCK_WAIT).await.unwrap();
        let begun = Instant::now();
        tx.end_sent(&receipts, KeepSent::Nothing).await.unwrap();
        let took = begun.elapsed();
        self.idle = Some(commit(tx).await);
        took
    }

    async fn median(&mut self, what: &str, without: &[&str]) {
        let mut times = Vec::new();
        for _ in 0..21 {
            times.push(self.fetch(without).await.1);
        }
        times.sort_unstable();
        println!("{what}: a fetch takes {:?}, at most {:?}", times[10], times[20]);
    }
}

async fn emit<S: QueueStore>(store: &S, rows: impl Iterator<Item = Outgoing>) {
    let rows: Vec<Outgoing> = rows.collect();
    for some in rows.chunks(2_000) {
        let mut tx = begin(store).await;
        tx.emit(some).await.unwrap();
        commit(tx).await;
    }
}

/// `looked_at` counts the rows that a fetch would look at.
async fn a_full_outbox_is_fetched_from_quickly<S: QueueStore>(store: S, looked_at: impl AsyncFn() -> i64) {
    let rows = size();
    let mut relay = Relay::new(&store).await;
    emit(&store, (0..rows).map(|n| row("orders", n))).await;
    relay.median(&format!("{rows} unsent"), &[]).await;
    relay.median(&format!("{rows} unsent, of a topic that is left out"), &["orders"]).await;

    // The first of each order key is refused: everything waits, and is soon not looked at any more.
    let heads = relay.fetch(&[]).await.0;
    let refused: Vec<_> = heads[..KEYS].iter().map(|row| (row.receipt, "too large".to_owned())).collect();
    let mut tx = begin(&store).await;
    tx.set_unsent_aside(&refused).await.unwrap();
    commit(tx).await;
    let (mut fetches, mut longest) = (0, Duration::ZERO);
    while looked_at().await > 0 {
        let (found, took) = relay.fetch(&[]).await;
        assert!(found.is_empty());
        (fetches, longest) = (fetches + 1, longest.max(took));
        assert!(fetches <= rows / BATCH, "what waits is looked at again and again");
    }
    println!("{fetches} fetches note that all wait, the longest takes {longest:?}");
    relay.median(&format!("{rows} that wait"), &[]).await;

    // One is skipped: what waited behind it comes, in order, and nothing else.
    let mut tx = begin(&store).await;
    let begun = Instant::now();
    assert_eq!(tx.skip_aside(&[refused[3].0.row]).await.unwrap(), [true]);
    println!("a skip takes {:?}", begun.elapsed());
    commit(tx).await;
    let (mut next, mut slowest) = (3 + KEYS, Duration::ZERO);
    loop {
        let (found, took) = relay.fetch(&[]).await;
        for row in &found {
            assert_eq!(row.outgoing.message.payload, next.to_string().as_bytes());
            next += KEYS;
        }
        if found.is_empty() {
            break;
        }
        slowest = slowest.max(took).max(relay.end(&found).await);
    }
    assert!(next >= rows, "only up to {next}");
    println!("all behind it are sent, no step takes more than {slowest:?}");
    emit(&store, (0..rows.min(2000)).map(|n| row("parcels", n))).await;
    relay.median(&format!("{rows} that wait or are dead, and others unsent"), &[]).await;
}

#[tokio::test]
async fn a_full_outbox_is_fetched_from_quickly_on_sqlite() {
    let place = SqlitePlace::new();
    let looked_at = async || place.count("oncebox_outbox where state = 0").await;
    a_full_outbox_is_fetched_from_quickly(place.open().await, looked_at).await;
}

#[tokio::test]
async fn a_full_outbox_is_fetched_from_quickly_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("a_full_outbox_is_fetched_from_quickly_on_postgres") else { return };
    let looked_at = async || place.count("outbox where state = 0").await;
    a_full_outbox_is_fetched_from_quickly(place.open().await, looked_at).await;
}
