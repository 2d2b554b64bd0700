//! A batch whose keys are all expected to be free is claimed by a plain insert. Where one is not free after all, the
//! transaction starts over, and nobody can tell the difference.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

mod common;

use std::time::Duration;

use oncebox_core::claim::{Claim, ClaimRequest};
use oncebox_core::store::{ConsumerId, ConsumerName, Ended, Inbox, Session, Store, Transaction};
use oncebox_core::{Fingerprinter, Key, Message, Outcome};

fn requests(consumer: ConsumerId, ids: impl IntoIterator<Item = u32>) -> Vec<ClaimRequest> {
    let fingerprint = Fingerprinter::default().fingerprint(&Message::new("t"));
    let request =
        |id: u32| ClaimRequest { consumer, key: Key::id(&format!("m{id}")).unwrap(), fingerprint, id_hash: None };
    ids.into_iter().map(request).collect()
}

async fn a_key_that_is_taken_spoils_nothing<S: Store>(store: S) {
    let consumer = store.consumer(&ConsumerName::new("hopeful").unwrap()).await.unwrap();
    let wait = Duration::from_secs(5);
    let mut session = store.connect().await.unwrap();
    // Three rounds on one session: it hopes, is disappointed, and is careful from then on.
    for (ids, fresh) in [(0..100, 100), (50..150, 50), (100..200, 50)] {
        let asked = requests(consumer, ids);
        let mut tx = session.begin(wait).await.unwrap();
        let claims = tx.claim(&asked).await.unwrap();
        assert_eq!(claims.iter().filter(|claim| **claim == Claim::Fresh).count(), fresh);
        let duplicates = claims.iter().filter(|claim| matches!(claim, Claim::Duplicate(_))).count();
        assert_eq!(fresh + duplicates, asked.len(), "each is one or the other");
        // What is fresh is ours to record and to take back; what is not, is not.
        let place = claims.iter().position(|claim| *claim == Claim::Fresh).unwrap();
        let own = &asked[place];
        tx.record(&[(consumer, own.key.clone(), Outcome::rejected("no"))]).await.unwrap();
        session = match tx.commit().await {
            Ended::Committed(session) => session,
            other => panic!("{other:?}"),
        };
    }
    let mut tx = session.begin(wait).await.unwrap();
    let claims = tx.claim(&requests(consumer, 0..200)).await.unwrap();
    assert!(claims.iter().all(|claim| matches!(claim, Claim::Duplicate(_))), "all were committed: {claims:?}");
    tx.rollback().await;
}

/// Two consumers in one batch take two statements. If the second one meets a taken key, what the first one inserted must
/// not pass for somebody else's.
async fn keys_of_two_consumers_are_all_told_apart<S: Store>(store: S) {
    let first = store.consumer(&ConsumerName::new("first").unwrap()).await.unwrap();
    let second = store.consumer(&ConsumerName::new("second").unwrap()).await.unwrap();
    let wait = Duration::from_secs(5);
    let mut tx = store.connect().await.unwrap().begin(wait).await.unwrap();
    tx.claim(&requests(second, 0..1)).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));

    let asked = [requests(first, 0..50), requests(second, 0..50)].concat();
    let mut tx = store.connect().await.unwrap().begin(wait).await.unwrap();
    let claims = tx.claim(&asked).await.unwrap();
    let taken: Vec<usize> = (0..100).filter(|at| claims[*at] != Claim::Fresh).collect();
    assert_eq!(taken, [50], "{claims:?}");
    tx.rollback().await;
}

#[tokio::test]
async fn keys_of_two_consumers_are_all_told_apart_on_postgres() {
    let test = "hopeful_claims::keys_of_two_consumers_are_all_told_apart_on_postgres";
    let Some(place) = common::PostgresPlace::or_skip(test) else { return };
    keys_of_two_consumers_are_all_told_apart(place.open().await).await;
}

#[tokio::test]
async fn keys_of_two_consumers_are_all_told_apart_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hopeful.db");
    let store = oncebox_store_sql::Sqlite::open(path.to_str().unwrap()).await.unwrap();
    keys_of_two_consumers_are_all_told_apart(store).await;
}

#[tokio::test]
async fn a_key_that_is_taken_spoils_nothing_on_postgres() {
    let Some(place) = common::PostgresPlace::or_skip("hopeful_claims::a_key_that_is_taken_spoils_nothing_on_postgres")
    else {
        return;
    };
    a_key_that_is_taken_spoils_nothing(place.open().await).await;
}

#[tokio::test]
async fn a_key_that_is_taken_spoils_nothing_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hopeful.db");
    a_key_that_is_taken_spoils_nothing(oncebox_store_sql::Sqlite::open(path.to_str().unwrap()).await.unwrap()).await;
}
