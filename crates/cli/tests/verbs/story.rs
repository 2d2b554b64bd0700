//! A day of an operator: payments come in, some cannot be handled, and are looked at, mended, replayed and given up; and
//! a broker refuses what was emitted.

use oncebox_testkit::eventually;
use serde_json::Value;

use crate::golden::Golden;
use crate::place::Place;

const WHY: [&str; 2] = ["--why", "reversals are handled now"];

struct Day<'p> {
    place: &'p Place,
    golden: Golden,
}

impl Day<'_> {
    /// A verb that changes nothing, in both forms.
    async fn both(&mut self, name: &str, words: &[&str]) {
        self.both_and(name, words, 0).await;
    }

    async fn both_and(&mut self, name: &str, words: &[&str], code: i32) {
        self.text(name, words, code).await;
        self.json(name, words, code).await;
    }

    async fn text(&mut self, name: &str, words: &[&str], code: i32) {
        let answer = self.place.answer(words, code).await;
        self.golden.text(name, &answer);
    }

    async fn json(&mut self, name: &str, words: &[&str], code: i32) {
        let answer = self.place.answer(&[words, &["--json"]].concat(), code).await;
        self.golden.json(name, &answer);
    }

    async fn send(&self, id: &str, kind: &str, payload: &str) {
        self.place.answer(&["send", "--id", id, "--type", kind, "--payload", payload], 0).await;
    }

    async fn number(&self, words: &[&str], of: impl Fn(&Value) -> u64) -> u64 {
        let output = self.place.run(&[words, &["--json"]].concat()).await;
        serde_json::from_slice(&output.stdout).map_or(0, |answer| of(&answer))
    }
}

pub(crate) async fn told(place: &Place, writes: bool) {
    let mut day = Day { place, golden: Golden::new(writes) };
    schema(&mut day).await;
    examination(&mut day).await;
    morning(&mut day).await;
    looks(&mut day).await;
    notes_and_ends(&mut day).await;
    steering(&mut day).await;
    replays(&mut day).await;
    outbox(&mut day).await;
    lives(&mut day).await;
    retention(&mut day).await;
}

async fn schema(day: &mut Day<'_>) {
    day.place
        .answer(&["send", "--type", "payment.received", "--payload", "{\"payment_id\": 0, \"amount\": 0}"], 0)
        .await;
    day.both("schema-check", &["schema", "check"]).await;
    day.both("schema-up", &["schema", "up"]).await;
    let script = day.place.answer(&["schema", "print"], 0).await;
    assert!(script.to_lowercase().contains("create table"), "{script}");
    let printed = day.place.answer(&["schema", "print", "--json"], 0).await;
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["sql"].as_str().unwrap().lines().count(), script.lines().count());
}

/// Before anything was counted, so that only the file is ill.
async fn examination(day: &mut Day<'_>) {
    day.place.with_an_ailing_file();
    day.both_and("doctor", &["doctor", "--file", "ailing.toml", "--require", "effectively-once"], 1).await;
}

/// Three payments that are applied, nine messages that are not.
async fn morning(day: &mut Day<'_>) {
    day.text("send", &["send", "--id", "p-1", "--payload", "{\"payment_id\": 1, \"amount\": 5}"], 0).await;
    day.json("send", &["send", "--id", "p-2", "--payload", "{\"payment_id\": 2, \"amount\": 5}"], 0).await;
    let entry = "{\"entry\": 900}";
    day.place.answer(&["send", "--to", "queue:entries", "--id", "e-1", "--payload", entry], 0).await;
    let mut child = day.place.running().await;
    // Written within a second, beside the message.
    let journaled = |life: &Value| life["consumers"][0]["deliveries"].as_array().map_or(0, |all| all.len() as u64);
    eventually("payments are applied", async || {
        day.number(&["outbox", "list"], |list| list["unsent"].as_u64().unwrap()).await == 3
            && day.number(&["message", "show", "--key", "entry:900", "--consumer", "ledger"], journaled).await == 1
    })
    .await;
    let parked = |groups: &Value| groups.as_array().into_iter().flatten().filter_map(|g| g["messages"].as_u64()).sum();
    for n in 1..=9 {
        match n {
            1..=7 => {
                let payload = format!("{{\"payment_id\": {n}, \"card\": \"CANARY\"}}");
                day.send(&format!("r-{n}"), "payment.reversed", &payload).await;
            }
            _ => day.send(&format!("p-{}", n - 5), "payment.received", &format!("{{\"payment_id\": {}}}", n - 5)).await,
        }
        // One after another, so that their rows have the numbers that the day goes on with.
        eventually("it is parked", async || day.number(&["parked", "groups", "invoices"], parked).await == n).await;
    }
    eventually("all is counted, and what waits is looked at", async || {
        let is_told = |status: &Value| {
            let [invoices, ledger] = [0, 1].map(|at| &status["consumers"][at]);
            let counted = invoices["applied"] == 3 && invoices["counters"]["dead"] == 9 && ledger["applied"] == 1;
            u64::from(counted && invoices["backlog"] == 0 && ledger["backlog"] == 0)
        };
        day.number(&["status"], is_told).await == 1
    })
    .await;
    child.kill().await.unwrap();
}

async fn looks(day: &mut Day<'_>) {
    day.both("parked-groups", &["parked", "groups", "invoices"]).await;
    day.both("parked-list", &["parked", "list", "invoices", "row <= 2"]).await;
    day.text("parked-list.more", &["parked", "list", "invoices", "--limit", "1", "--after", "3"], 0).await;
    day.text("parked-list.none", &["parked", "list", "invoices", "row = 99"], 0).await;
    day.both("parked-show", &["parked", "show", "1"]).await;
    day.text("parked-show.payload", &["parked", "show", "8", "--payload"], 0).await;
    // Today's file has no handler for reversals yet.
    day.both("parked-plan", &["parked", "plan", "invoices", "row <= 2"]).await;
    day.json("parked-export", &["parked", "export", "invoices", "row = 8"], 0).await;
    day.text("replay-list.none", &["replay", "list"], 0).await;
}

async fn notes_and_ends(day: &mut Day<'_>) {
    let words = ["parked", "note", "invoices", "row = 1", "--note", "asked the bank", "--why", "handing over"];
    day.both("parked-note", &words).await;
    day.text("parked-discard", &["parked", "discard", "invoices", "row = 6", "--why", "a test of theirs", "--yes"], 0)
        .await;
    day.json("parked-discard", &["parked", "discard", "invoices", "row = 7", "--why", "a test of theirs", "--yes"], 0)
        .await;
    let why = ["--why", "they forgot the amount", "--yes"];
    day.place.write("p-3.json", "{\"payment_id\": 3, \"amount\": 7}");
    day.place.write("p-4.json", "{\"payment_id\": 4, \"amount\": 7}");
    day.text("parked-edit", &[&["parked", "edit", "8", "p-3.json"], &why[..]].concat(), 0).await;
    day.json("parked-edit", &[&["parked", "edit", "9", "p-4.json", "--keep"], &why[..]].concat(), 0).await;
}

/// Replays that nobody carries on, so that each state can be looked at.
async fn steering(day: &mut Day<'_>) {
    day.place.with_reversals();
    let dry = ["parked", "plan", "invoices", "row <= 2 or row = 8", "--dry-run"];
    day.both("parked-plan.dry-run", &dry).await;
    let start = |row: &'static str| [&["parked", "replay", "invoices", row, "--detach", "--yes"], &WHY[..]].concat();
    day.text("parked-replay.detached", &start("row = 1"), 0).await;
    day.place.answer(&start("row = 2"), 0).await;
    day.both("replay-list", &["replay", "list"]).await;
    day.both("replay-show", &["replay", "show", "1"]).await;
    // The process that was killed was seen lately, what it emitted waits, and two replays are not over.
    day.both("status", &["status"]).await;
    let steer = |verb: &'static str, id: &'static str| ["replay", verb, id, "--why", "too busy"];
    day.text("replay-pause", &steer("pause", "1"), 0).await;
    day.json("replay-pause", &steer("pause", "2"), 0).await;
    day.text("replay-resume", &steer("resume", "1"), 0).await;
    day.json("replay-resume", &steer("resume", "2"), 0).await;
    day.place.answer(&start("row = 3"), 0).await;
    day.place.answer(&start("row = 4"), 0).await;
    day.text("replay-cancel", &steer("cancel", "3"), 0).await;
    day.json("replay-cancel", &steer("cancel", "4"), 0).await;
}

/// Replays that are followed to their end, beside a consumer that runs.
async fn replays(day: &mut Day<'_>) {
    let mut child = day.place.running().await;
    let drive = |id: &'static str| ["replay", "drive", id, "--why", "carrying on"];
    day.text("replay-drive", &drive("1"), 0).await;
    day.json("replay-drive", &drive("2"), 0).await;
    let start = |row: &'static str| [&["parked", "replay", "invoices", row, "--yes"], &WHY[..]].concat();
    day.text("parked-replay", &start("row = 3"), 0).await;
    day.json("parked-replay", &start("row = 4"), 0).await;
    eventually("the edited message is applied", async || {
        day.number(&["outbox", "list"], |list| list["unsent"].as_u64().unwrap()).await == 4
    })
    .await;
    child.kill().await.unwrap();
}

async fn outbox(day: &mut Day<'_>) {
    day.text("outbox-list.all", &["outbox", "list", "--all", "--limit", "1"], 0).await;
    day.place.refuse("the message is larger than the broker takes").await;
    day.both("outbox-list", &["outbox", "list", "--limit", "2"]).await;
    day.both("outbox-show", &["outbox", "show", "2"]).await;
    day.both("message-show", &["message", "show", "p-1"]).await;
    let why = ["--why", "the limit was raised"];
    day.text("outbox-retry", &[&["outbox", "retry", "1"], &why[..]].concat(), 0).await;
    day.json("outbox-retry", &[&["outbox", "retry", "4", "99"], &why[..]].concat(), 0).await;
    let skipped: Value = serde_json::from_str(&day.place.answer(&["outbox", "show", "2", "--json"], 0).await).unwrap();
    day.text("outbox-skip", &[&["outbox", "skip", "2", "--yes"], &why[..]].concat(), 0).await;
    day.text("message-show.given-up", &["message", "show", skipped["id"].as_str().unwrap()], 0).await;
    day.json("outbox-skip", &[&["outbox", "skip", "3", "--yes"], &why[..]].concat(), 0).await;
    day.text("outbox-skip.nothing", &[&["outbox", "skip", "2", "--yes"], &why[..]].concat(), 1).await;
}

async fn lives(day: &mut Day<'_>) {
    day.text("message-show.skipped", &["message", "show", "p-1"], 0).await;
    day.both("message-show.parked", &["message", "show", "r-5"]).await;
    day.both("message-show.discarded", &["message", "show", "r-6"]).await;
    day.both("message-show.edited", &["message", "show", "p-4"]).await;
    day.text("message-show.replayed", &["message", "show", "r-1", "--consumer", "invoices"], 0).await;
    day.both("message-show.by-key", &["message", "show", "--key", "entry:900", "--consumer", "ledger"]).await;
    // Its key is not its id, but its journal knows that, too.
    day.text("message-show.by-another-id", &["message", "show", "e-1", "--consumer", "ledger"], 0).await;
    day.both_and("message-show.unknown", &["message", "show", "nobody"], 1).await;
    day.place.answer(&["send", "--id", "late", "--payload", "{\"payment_id\": 9, \"amount\": 1}"], 0).await;
    day.text("message-show.queued", &["message", "show", "late"], 0).await;
}

/// A month goes by, old records go, and a checkpoint is set.
async fn retention(day: &mut Day<'_>) {
    day.place.let_a_month_pass().await;
    day.both("retention-plan", &["retention", "plan", "invoices", "--older-than", "20d"]).await;
    let apply = |consumer| {
        ["retention", "apply", consumer, "--older-than", "20d", "--archive", "--why", "a month went by", "--yes"]
    };
    day.text("retention-apply", &apply("ledger"), 0).await;
    day.json("retention-apply", &apply("invoices"), 0).await;
    day.text("retention-plan.archived", &["retention", "plan", "invoices", "--older-than", "20d"], 0).await;
    day.both("message-show.archived", &["message", "show", "p-1"]).await;
    let checkpoint = ["retention", "checkpoint", "invoices", "--before", "2026-01-02T03:04:05Z", "--why", "cut-over"];
    day.text("retention-checkpoint", &[&checkpoint[..], &["--yes"]].concat(), 0).await;
    day.json("retention-checkpoint", &[&checkpoint[..], &["--yes"]].concat(), 0).await;
}
