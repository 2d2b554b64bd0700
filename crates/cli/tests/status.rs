//! `oncebox status`: its text and its JSON.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::Stdio;

use oncebox_testkit::eventually;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    command
}

async fn told(folder: &Path, words: &[&str]) -> String {
    let output = oncebox(folder, words).output().await.unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn status(folder: &Path) -> Value {
    serde_json::from_str(&told(folder, &["status", "--json"]).await).unwrap()
}

async fn status_of(folder: &Path) -> Value {
    status(folder).await["consumers"][0].clone()
}

fn run(folder: &Path) -> Child {
    oncebox(folder, &["run"]).stderr(Stdio::null()).spawn().unwrap()
}

async fn stop(mut child: Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().await.unwrap().success());
}

/// A folder with a pipeline that handled 300 messages, half of them twice, and none that runs.
async fn after_a_run(folder: &Path) {
    told(folder, &["init"]).await;
    let child = run(folder);
    // The tables come with the start.
    eventually("it has started", async || {
        let output = oncebox(folder, &["schema", "check"]).output().await.unwrap();
        output.status.success()
    })
    .await;
    told(folder, &["send", "--repeat", "300", "--duplicate-ratio", "0.5"]).await;
    eventually("all is counted while it runs", async || {
        let one = &status(folder).await["consumers"][0];
        one["applied"] == 300 && one["duplicates"] == 150 && one["backlog"] == 0 && one["processes"] == 1
    })
    .await;
    let text = told(folder, &["status"]).await;
    assert!(text.contains("1 process  effectively once"), "{text}");
    assert!(text.contains("consumer invoices"), "{text}");
    stop(child).await;
}

/// The process goes on with the file that it began with; its next start is refused, and whoever looks is told before.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_edited_while_the_consumer_runs_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    told(folder, &["init"]).await;
    let child = run(folder);
    let is_bound = async || {
        let output = oncebox(folder, &["status", "--json"]).output().await.unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        (status["consumers"][0]["processes"] == 1).then_some(status)
    };
    let status = eventually("it runs", is_bound).await;
    assert_eq!(status["consumers"][0]["identity_refused"], Value::Null);

    let file = folder.join("oncebox.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("key = \"message-id\""), "{text}");
    std::fs::write(&file, text.replace("key = \"message-id\"", "key = \"content-hash\"")).unwrap();
    let one = status_of(folder).await;
    let refused = one["identity_refused"].as_str().unwrap();
    assert!(refused.contains("`content-hash/2`") && refused.contains("`message-id`"), "{one}");
    assert_eq!((&one["processes"], &one["identity_was"]), (&json!(1), &Value::Null), "{one}");
    let shown = told(folder, &["status"]).await;
    assert!(shown.contains("invoices cannot start as the file has it"), "{shown}");

    let bridged = "key = \"content-hash\"\nkey_was = \"message-id\"";
    std::fs::write(&file, text.replace("key = \"message-id\"", bridged)).unwrap();
    assert_eq!(status_of(folder).await["identity_refused"], Value::Null, "what is bridged may start");
    stop(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_and_json_have_the_documented_form() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    after_a_run(folder).await;

    let text = told(folder, &["status"]).await;
    // How long ago it ended is not for a test to say.
    let ago = text.split("nobody for ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let expected = "\
CONSUMER  APPLIED  DUPLICATES  CONFLICTS  PARKED  DEAD  BACKLOG  OLDEST  RUNS IN        GUARANTEE
invoices  300      150         0          0       0     0        0s      nobody for 1s  effectively once

no process was seen in the last minute
";
    assert_eq!(text.replace(&format!("nobody for {ago}"), "nobody for 1s"), expected);

    let mut all = status(folder).await;
    assert!(all["at"].as_str().unwrap().ends_with('Z'));
    let consumer = &mut all["consumers"][0];
    assert!(consumer["seen_seconds_ago"].as_u64().unwrap() < 60);
    consumer["seen_seconds_ago"] = json!(1);
    let counters = consumer["counters"].take();
    assert_eq!(counters["deliveries"], 450);
    assert_eq!(counters["duplicates_sent_again"], 150, "the queue says that it delivers each for the first time");
    let expected = json!({
        "name": "invoices", "applied": 300, "duplicates": 150, "conflicts": 0, "parked": 0,
        "parked_is_more": false, "dead": 0, "dead_is_more": false, "backlog": 0, "backlog_is_more": false, "oldest_seconds": 0,
        "guarantee": "effectively once", "waiting_for": [], "processes": 0, "seen_seconds_ago": 1, "counters": null,
        "identity": "key `message-id` within consumer, order by none", "identity_refused": null, "identity_was": null,
    });
    assert_eq!(*consumer, expected);
    let relay = json!({
        "backlog": 0, "backlog_is_more": false, "lag_seconds": 0, "refused": 0, "published": 0, "waiting_for": [],
        "processes": 0, "lanes": [], "counters": {},
    });
    assert_eq!(all["relay"], relay);
    assert_eq!((&all["replays"], &all["processes"]), (&json!([]), &json!([])));

    // The fields, in the order that the document gives them.
    let line = told(folder, &["status", "--json"]).await;
    let at = |field: &str| line.find(&format!("\"{field}\":")).unwrap_or_else(|| panic!("no {field}: {line}"));
    assert!(at("at") < at("consumers") && at("consumers") < at("relay") && at("relay") < at("replays"));
}

/// What was counted outlives the processes that counted, killed or not, and is not counted twice.
#[tokio::test(flavor = "multi_thread")]
async fn counts_go_on_over_restarts_and_what_waits_is_told_while_nobody_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    after_a_run(folder).await;
    told(folder, &["send", "--repeat", "20", "--type", "payment.received"]).await;
    let waiting = status(folder).await;
    assert_eq!(waiting["consumers"][0]["backlog"], 20, "{waiting}");
    assert_eq!(waiting["consumers"][0]["processes"], 0);

    let mut child = run(folder);
    // Their payments are there already, by other messages: they are set aside.
    let counted = async || {
        let one = status(folder).await["consumers"][0].clone();
        let counter = |name: &str| one["counters"][name].as_u64().unwrap();
        (counter("handled"), counter("transport_duplicates"), counter("dead"), one["dead"].as_u64().unwrap())
    };
    eventually("the rest is counted", async || counted().await == (300, 150, 20, 20)).await;
    child.kill().await.unwrap();
    assert_eq!(counted().await, (300, 150, 20, 20), "a kill after the flush loses nothing");
    let child = run(folder);
    let processes = async || status(folder).await["processes"].as_array().unwrap().len();
    eventually("another one runs, and the one that was killed was seen lately", async || processes().await == 2).await;
    stop(child).await;
    assert_eq!((counted().await, processes().await), ((300, 150, 20, 20), 1));

    let watched = told(folder, &["status", "--watch", "--looks", "2", "--every", "1"]).await;
    assert!(watched.contains("APPLIED/s"), "{watched}");
    let lines = told(folder, &["status", "--watch", "--looks", "2", "--json"]).await;
    assert_eq!(lines.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (words, code) in [(&["status"][..], 2), (&["status", "--store", "sqlite://nowhere.db"], 1)] {
        let output = oncebox(folder, words).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{said}");
    }
    let output = oncebox(folder, &["status", "--every", "2"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2), "--every goes with --watch");
}
