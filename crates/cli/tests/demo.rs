//! The demo's verdict: good when Oncebox is, bad when a bug is planted. Real worker processes, real kills.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::process::{Command, Output};

use oncebox_testkit::skipped;
use serde_json::Value;

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.arg("demo").args(args);
    command
}

fn verdict(output: &Output) -> Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("no verdict; {}", String::from_utf8_lossy(&output.stderr)))
}

fn number(verdict: &Value, field: &str) -> u64 {
    verdict[field].as_u64().unwrap_or_else(|| panic!("no {field} in {verdict}"))
}

/// A good run: everything once, although workers were killed and messages came again.
fn assert_good(output: &Output, messages: u64) {
    let verdict = verdict(output);
    assert!(output.status.success(), "{verdict}");
    assert_eq!((number(&verdict, "lost"), number(&verdict, "doubled")), (0, 0), "{verdict}");
    assert_eq!((number(&verdict, "messages"), number(&verdict, "effects")), (messages, messages), "{verdict}");
    assert!(number(&verdict, "crashes") > 0, "nobody was killed: {verdict}");
    let (deliveries, duplicates) = (number(&verdict, "deliveries"), number(&verdict, "duplicates"));
    assert!(deliveries > messages && duplicates == deliveries - messages, "{verdict}");
}

#[test]
fn workers_killed_on_sqlite_lose_and_double_nothing() {
    assert_good(&demo(&["--messages", "2000", "--seed", "7", "--json"]).output().unwrap(), 2_000);
}

#[test]
fn workers_killed_on_postgres_lose_and_double_nothing() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("demo::workers_killed_on_postgres_lose_and_double_nothing");
    };
    assert_good(&demo(&["--messages", "2000", "--seed", "7", "--json", "--store", &url]).output().unwrap(), 2_000);
}

#[test]
fn without_json_the_verdict_is_one_line_for_people() {
    let output = demo(&["--messages", "50", "--workers", "2"]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    assert!(stdout.starts_with("50 messages · ") && stdout.ends_with("50 effects · 0 lost · 0 doubled\n"), "{stdout}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains('\u{1b}'), "no picture where there is no terminal: {stderr}");
}

#[test]
fn bad_input_gets_one_clear_line() {
    for (args, says) in [
        (["--store", "mysql://u:CANARY@h/db"].as_slice(), "neither sqlite:PATH nor postgres://"),
        (&["--store", "postgres://u:CANARY@127.0.0.1:1/db"], "cannot connect to postgres at 127.0.0.1:1/db"),
        (&["--store", "postgres://u:CANARY@:::"], "its URL is not of the form"),
        (&["--store", "sqlite:/nowhere/at/all.db"], "/nowhere/at/all.db"),
        (&["--messages", "0"], "--messages"),
    ] {
        let output = demo(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(stderr.contains(says), "{args:?} says {stderr}");
        assert!(!stderr.contains("CANARY") && !stderr.contains("panicked"), "{stderr}");
    }
}

/// The verdict can fail: with a bug in the workers, the demo says so and exits with 1.
#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;

    fn bad_run(bug: &str) -> Value {
        let mut command = demo(&["--messages", "1500", "--seed", "7", "--json"]);
        let output = command.env("ONCEBOX_PLANTED", bug).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        verdict(&output)
    }

    #[test]
    fn a_skipped_claim_is_seen_as_doubled_effects() {
        assert!(number(&bad_run("claim-skipped"), "doubled") > 0);
    }

    #[test]
    fn an_ack_before_the_commit_is_seen_as_lost_messages() {
        assert!(number(&bad_run("ack-before-commit"), "lost") > 0);
    }
}
