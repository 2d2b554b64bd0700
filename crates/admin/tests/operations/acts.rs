//! Looking, exporting, noting, discarding.

use std::time::Duration;

use oncebox_admin::{Admin, Filter};
use oncebox_core::parked::Cause;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{Claim, Class, ConsumerId, Inbox, OutcomeKind, Transaction};
use oncebox_testkit::faults::{FaultPlan, Faulty};
use oncebox_testkit::store::{Setup, StoreFixture};

use crate::rig::{ada, admin, begin, consumer, dead, meant, message, now, park, request, rows};

/// More than fit on a page, of two causes.
async fn letters<S: QuarantineStore>(store: &S) -> ConsumerId {
    let us = consumer(store).await;
    let letter = |n: usize| {
        let mut letter = dead(us, message(&format!("m{n:03}"), &format!("{{\"amount\":\n {n}}}")));
        if n.is_multiple_of(4) {
            letter.verdict.class = Some(Class::Transient);
            letter.verdict.cause = Cause::new(letter.verdict.class, "payment.received", "timed-out");
        }
        letter
    };
    park(store, &(0..450).map(letter).collect::<Vec<_>>()).await;
    us
}

/// Causes are counted over everything; pages follow one another; one message is shown whole.
pub(crate) async fn messages_are_grouped_listed_and_shown<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    letters(&setup.store).await;
    let admin = admin(&setup);
    let all = admin.groups(&meant(&admin, "all").await).await.unwrap();
    let counts: Vec<(&str, u64)> = all.iter().map(|group| (group.cause.as_str(), group.messages)).collect();
    let causes = ["permanent/payment.received/bank-closed", "transient/payment.received/timed-out"];
    assert_eq!(counts, [(causes[0], 337), (causes[1], 113)]);
    let some = admin.groups(&meant(&admin, "payload.amount < 8").await).await.unwrap();
    let counts: Vec<(&str, u64)> = some.iter().map(|group| (group.cause.as_str(), group.messages)).collect();
    assert_eq!(counts, [(causes[0], 6), (causes[1], 2)]);

    let transient = meant(&admin, "class = transient").await;
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = admin.list(&transient, after, 50).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.row;
        seen.extend(page.into_iter().map(|view| view.id.unwrap()));
    }
    assert_eq!(seen.len(), 113);
    assert!(seen.is_sorted());
    let shown = admin.show(after).await.unwrap();
    assert_eq!((shown.consumer.as_str(), shown.id.as_deref(), shown.state), ("invoices", Some("m448"), "dead"));
    assert_eq!(shown.payload.unwrap().get(), r#"{"amount":448}"#);
}

/// An export is JSON Lines: each message whole, JSON as JSON, other payloads as base64.
pub(crate) async fn an_export_has_a_line_for_each_message<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let us = letters(&setup.store).await;
    let mut odd = message("odd", "").with_payload(vec![0xff, 0xfe]).with_order_key("o").with_version(3);
    odd.headers.add("tenant", "acme").unwrap();
    park(&setup.store, &[dead(us, odd)]).await;
    let admin = admin(&setup);
    let mut out = Vec::new();
    let meant = meant(&admin, "id = m00* or id = odd").await;
    assert_eq!(admin.export(&meant, &mut out).await.unwrap(), 11);
    let lines: Vec<serde_json::Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[3]["payload"]["amount"], 3);
    assert_eq!((&lines[3]["id"], &lines[3]["type"]), (&"m003".into(), &"payment.received".into()));
    let odd = &lines[10];
    assert_eq!((&odd["payload_base64"], &odd["order_key"], &odd["version"]), (&"//4=".into(), &"o".into(), &3.into()));
    assert_eq!(odd["headers"], serde_json::json!([["tenant", "acme"]]));
}

/// A note is written on everything that matches, and found by a filter.
pub(crate) async fn a_note_is_written_on_everything_that_matches<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    letters(&setup.store).await;
    let admin = admin(&setup);
    let transient = meant(&admin, "class = transient").await;
    assert_eq!(admin.note(&transient, Some("asked the bank"), &ada()).await.unwrap().done, 113);
    assert_eq!(meant(&admin, "note ~ BANK").await.messages, 113);
    assert_eq!(admin.note(&transient, None, &ada()).await.unwrap().done, 113);
    assert_eq!(meant(&admin, "note").await.messages, 0);
}

/// A discard takes what was counted and nothing that was parked since; redeliveries are answered with the reason.
pub(crate) async fn a_discard_takes_everything_that_matches_and_nothing_that_came_later<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let us = letters(&setup.store).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "class = permanent").await;
    let later = dead(us, message("later", "{}"));
    park(&setup.store, std::slice::from_ref(&later)).await;
    let acted = admin.discard(&meant, &ada()).await.unwrap();
    assert_eq!((acted.done, acted.passed_over), (meant.messages, 0));
    assert_eq!(rows(&setup.store, us).await.len(), 113 + 1);
    assert_eq!(admin.discard(&meant, &ada()).await.unwrap().done, 0, "there is nothing left of them");
    let gone = dead(us, message("m001", "{\"amount\":\n 1}"));
    let mut tx = begin(&setup.store).await;
    let claims = tx.claim(&[request(&gone), request(&later)]).await.unwrap();
    tx.rollback().await;
    let [Claim::Duplicate(gone), Claim::Duplicate(later)] = &claims[..] else { panic!("{claims:?}") };
    assert_eq!((gone.outcome.kind(), later.outcome.kind()), (OutcomeKind::Rejected, OutcomeKind::Parked));
    let reason = gone.outcome.result().unwrap();
    assert_eq!(&reason[..], b"discarded by an operator: the bank is open again");
}

/// Who did what, when and why: each step of an operation is there, with what it touched.
pub(crate) async fn what_operators_do_is_in_the_audit_log<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    letters(&setup.store).await;
    setup.advance(Duration::from_secs(60)).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "id = m00*").await;
    admin.note(&meant, Some("look"), &ada()).await.unwrap();
    admin.discard(&meant, &ada()).await.unwrap();
    let log = admin.audit(None, 10).await.unwrap();
    assert_eq!(log.iter().map(|entry| entry.verb.as_str()).collect::<Vec<_>>(), ["parked.discard", "parked.note"]);
    let discard = &log[0];
    assert_eq!((discard.who.as_str(), discard.why.as_str()), ("ada", "the bank is open again"));
    assert_eq!((discard.consumer.as_deref(), discard.messages), (Some("invoices"), 10));
    assert_eq!(discard.at, now(&setup));
    let detail: serde_json::Value = serde_json::from_str(discard.detail.get()).unwrap();
    assert_eq!(detail["filter"], "id = m00*");
    assert_eq!(detail["messages"][2]["id"], "m002");
}

/// A look at a few reads a page, and groups of everything read no message at all.
pub(crate) async fn a_look_reads_no_more_than_it_shows<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    letters(&setup.store).await;
    let calls = FaultPlan::new();
    let admin = Admin::new(Faulty::new(setup.store.clone(), calls.clone())).with_clock(setup.clock.clone());
    let all = admin.matching("invoices", Filter::all()).await.unwrap();
    assert_eq!(admin.list(all.clone(), 0, 50).await.unwrap().len(), 50);
    assert_eq!(calls.count("page"), 1, "450 are parked, and 200 are on a page");
    assert_eq!(admin.groups(all.clone()).await.unwrap().iter().map(|group| group.messages).sum::<u64>(), 450);
    assert_eq!((calls.count("page"), calls.count("causes")), (1, 1));
    let some = admin.matching("invoices", Filter::parse("class = transient").unwrap()).await.unwrap();
    assert_eq!(admin.groups(some).await.unwrap()[0].messages, 113);
    assert_eq!(calls.count("page"), 5, "each page once, and the end");
}
