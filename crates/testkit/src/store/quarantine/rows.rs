//! What an operator sees.

use std::time::Duration;

use oncebox_core::parked::{Cause, Waits};
use oncebox_core::quarantine::{ParkedState, Quarantine, QuarantineStore};
use oncebox_core::{Class, OutcomeKind, Transaction};

use super::steps::{dead, dead_in_order, park, request, rows, texts, waiting};
use crate::store::steps::{assert_duplicate, begin, claim_and_commit, commit, consumer, fingerprint, key, look};
use crate::store::{Setup, StoreFixture};

/// A parked message is shown with everything that came with it and everything that is known of it.
pub async fn a_parked_message_is_shown_as_it_came<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let parked = dead_in_order(consumer, "order 7", "1");
    let row = park(store, std::slice::from_ref(&parked)).await[0];
    let mut tx = begin(store).await;
    let shown = tx.parked(row).await.expect("a row can be read").expect("it is there");
    assert_eq!(tx.parked(row + 1000).await.expect("a row can be looked for"), None);
    tx.rollback().await;
    assert_eq!(rows(store, consumer).await, std::slice::from_ref(&shown), "a page shows the same");
    assert_eq!(shown.message, *parked.message);
    assert_eq!((shown.row, shown.consumer, shown.key), (row, consumer, parked.key));
    assert_eq!((shown.fingerprint, shown.owns_record), (parked.fingerprint, true));
    assert_eq!(shown.order_key.as_deref(), Some("order 7"));
    assert_eq!((shown.state, shown.due_at, shown.class), (ParkedState::Dead, None, Some(Class::Permanent)));
    assert_eq!((shown.cause, shown.reason, shown.attempts), (parked.verdict.cause, parked.verdict.reason, 2));
    assert_eq!((shown.note, shown.replay, shown.supersedes, shown.is_held_up), (None, None, None, false));
    assert_eq!(shown.first_at, shown.last_at);
}

/// Pages follow the order in which messages were parked, and leave none out.
pub async fn pages_follow_the_order_of_parking<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    park(store, &["1", "2", "3"].map(|text| dead(ours, text))).await;
    park(store, &[dead(other, "x")]).await;
    park(store, &["4", "5"].map(|text| dead(ours, text))).await;
    let mut tx = begin(store).await;
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = tx.page(ours, after, 2).await.expect("a page can be read");
        let Some(last) = page.last() else { break };
        after = last.row;
        seen.extend(texts(&page));
    }
    tx.rollback().await;
    assert_eq!(seen, ["1", "2", "3", "4", "5"]);
}

/// Messages are counted by cause, the most common first.
pub async fn causes_are_counted<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let mut rare = dead(consumer, "1");
    rare.verdict.cause = Cause::new(Some(Class::Unknown), "noted", "lost");
    park(store, &[rare, dead(consumer, "2"), dead(consumer, "3")]).await;
    setup.advance(Duration::from_secs(5)).await;
    park(store, &[waiting(dead(consumer, "4"), Waits::Retry(Duration::ZERO))]).await;
    let mut tx = begin(store).await;
    let causes = tx.causes(consumer).await.expect("causes can be counted");
    tx.rollback().await;
    let counts: Vec<_> = causes.iter().map(|count| (count.cause.as_str(), count.messages, count.dead)).collect();
    assert_eq!(counts, [("permanent/noted/bank-closed", 3, 2), ("unknown/noted/lost", 1, 1)]);
    assert_eq!(causes[0].last_at.duration_since(causes[0].first_at).as_secs(), 5);
}

/// A note is kept with a message until it is taken away, and a row that is gone gets none.
pub async fn a_note_is_kept<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let row = park(store, &[dead(consumer, "1")]).await[0];
    for note in [Some("ask the bank: \u{e4}"), None] {
        let mut tx = begin(store).await;
        assert_eq!(tx.annotate(&[row, row + 1000], note).await.expect("a note can be set"), [true, false]);
        commit(tx).await;
        assert_eq!(rows(store, consumer).await[0].note.as_deref(), note);
    }
}

/// What the inbox remembers is read without a claim.
pub async fn records_are_read_without_a_claim<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    claim_and_commit(store, &request(consumer, "applied")).await;
    park(store, &[dead(consumer, "parked")]).await;
    let mut tx = begin(store).await;
    let keys = ["applied", "unheard-of", "parked"].map(key);
    let said = tx.remembered(consumer, &keys).await.expect("records can be read");
    commit(tx).await;
    let outcomes: Vec<_> = said.iter().map(|said| said.map(|said| said.outcome)).collect();
    assert_eq!(outcomes, [Some(OutcomeKind::Applied), None, Some(OutcomeKind::Parked)]);
    assert_eq!(said[0].map(|said| said.fingerprint), Some(fingerprint(7)));
    assert_duplicate(&look(store, &request(consumer, "applied")).await);
    assert_eq!(look(store, &request(consumer, "unheard-of")).await, oncebox_core::Claim::Fresh);
}

/// A row is held up by a dead one of its order key before its page, and by no other.
pub async fn a_row_behind_a_dead_one_is_held_up<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let gap = waiting(dead_in_order(consumer, "a", "gap"), Waits::Gap(Duration::ZERO));
    let parks = [
        dead_in_order(consumer, "a", "1"),
        waiting(dead_in_order(consumer, "b", "2"), Waits::Turn),
        dead_in_order(consumer, "a", "3"),
        dead_in_order(consumer, "b", "4"),
        gap,
        dead(consumer, "6"),
    ];
    let ids = park(store, &parks).await;
    let mut tx = begin(store).await;
    let held =
        |page: &[oncebox_core::quarantine::ParkedRow]| -> Vec<bool> { page.iter().map(|row| row.is_held_up).collect() };
    let first = tx.page(consumer, 0, 10).await.expect("a page can be read");
    assert_eq!(held(&first), [false; 6], "nothing stands before the first page");
    let second = tx.page(consumer, ids[1], 10).await.expect("a page can be read");
    assert_eq!(held(&second), [true, false, false, false]);
    let third = tx.parked(ids[2]).await.expect("a row can be read").expect("it is there");
    assert!(third.is_held_up);
    tx.rollback().await;
}
