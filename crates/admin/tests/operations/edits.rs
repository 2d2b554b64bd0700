//! Edit and replay.

use oncebox_admin::{AfterEdit, Error};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{Claim, Fingerprinter, Inbox, Key, KeyStrategy, OutcomeKind, Transaction};
use oncebox_testkit::store::{Setup, StoreFixture};

use crate::rig::{ada, admin, begin, consumer, dead, message, park, request, rows, run_due};

/// An edited message is a new one in the place of the old: applied once, linked both ways, the difference kept.
pub(crate) async fn an_edited_message_supersedes_the_old_one<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let old = dead(us, message("old", r#"{"amount":-1,"currency":"EUR"}"#).with_order_key("a"));
    let next = dead(us, message("next", "{}").with_order_key("a"));
    park(store, &[old.clone(), next]).await;
    let row = rows(store, us).await[0].row;
    let admin = admin(&setup);
    let edited = admin.edit(row, br#"{"amount":1,"currency":"EUR"}"#, AfterEdit::Replay, &ada()).await.unwrap();
    assert_eq!((edited.row, edited.supersedes.as_deref()), (row, Some("old")));
    assert_eq!(edited.changed, ["amount"]);
    let shown = admin.show(row).await.unwrap();
    assert_eq!((shown.id.as_deref(), shown.edited_by), (Some(edited.id.as_str()), Some(edited.audit)));
    assert_eq!(shown.headers, Some(vec![("oncebox-supersedes".to_owned(), "old".to_owned())]));

    let log = admin.audit(None, 10).await.unwrap();
    assert_eq!((log.len(), log[0].id, log[0].verb.as_str()), (1, edited.audit, "parked.edit"));
    let detail: serde_json::Value = serde_json::from_str(log[0].detail.get()).unwrap();
    assert_eq!(detail["difference"], serde_json::json!([{ "path": "amount", "before": -1, "after": 1 }]));
    assert_eq!(detail["before"], serde_json::json!({ "amount": -1, "currency": "EUR" }));
    assert!(!format!("{:?}", log[0]).contains("EUR"), "a payload in Debug");

    assert_eq!(run_due::<F>(store, us, |_| false).await, 1, "the next of its key is still dead");
    assert_eq!(F::effects(store).await, std::slice::from_ref(&edited.id));
    let mut tx = begin(store).await;
    let claims = tx.claim(&[request(&old)]).await.unwrap();
    tx.rollback().await;
    let [Claim::Duplicate(earlier)] = &claims[..] else { panic!("the old one would run too: {claims:?}") };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Rejected);
    assert!(matches!(admin.edit(row, b"{}", AfterEdit::Stay, &ada()).await, Err(Error::NoRow(_))));
}

/// A consumer that makes its keys in another way than this program is noticed; with its own strategy, an edit under the
/// same business key keeps the record.
pub(crate) async fn an_edit_needs_the_consumers_own_keys<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let strategy = KeyStrategy::template("payment:{payment_id}").unwrap();
    let mut letter = dead(us, message("m1", r#"{"payment_id":"p7","amount":-1}"#));
    letter.key = strategy.key(&letter.message, None).unwrap();
    park(store, &[letter]).await;
    let before = rows(store, us).await;
    let admin = admin(&setup);
    let payload = br#"{"payment_id":"p7","amount":1}"#;
    let refused = admin.edit(before[0].row, payload, AfterEdit::Stay, &ada()).await.unwrap_err();
    assert!(matches!(refused, Error::OtherIdentity { .. }), "{refused}");
    assert_eq!(rows(store, us).await, before);

    let fingerprinter = Fingerprinter::default();
    let admin = admin.identified_by(move |message| {
        let key: Key = strategy.key(message, None)?;
        Ok((key, fingerprinter.fingerprint(message)))
    });
    let without = admin.edit(before[0].row, b"{}", AfterEdit::Stay, &ada()).await.unwrap_err();
    assert!(without.to_string().contains("gets no key: its payload has no field `payment_id`"), "{without}");
    admin.edit(before[0].row, payload, AfterEdit::Stay, &ada()).await.unwrap();
    let after = rows(store, us).await;
    assert_eq!(after[0].key, before[0].key);
    assert_ne!(after[0].fingerprint, before[0].fingerprint);
    let mut tx = begin(store).await;
    assert_eq!(tx.reclaim(&[(us, after[0].key.clone())]).await.unwrap(), [true], "its record is its own");
    tx.rollback().await;
}
