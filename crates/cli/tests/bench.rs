//! The benchmark runs every variant, checks that each did the work, and prints the ratios.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::process::Command;

use oncebox_testkit::skipped;
use serde_json::Value;

fn bench(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_oncebox")).args(["bench", "inbox"]).args(args).output().unwrap()
}

#[test]
fn the_last_line_is_one_object_with_the_ratios() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("bench::the_last_line_is_one_object_with_the_ratios");
    };
    let output = bench(&["--store", &url, "--messages", "500", "--rounds", "1", "--json"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    for ratio in ["batch_over_hand_batched", "batch_over_naive", "each_over_naive", "batch_over_bare"] {
        assert!(report["ratios"][ratio].as_f64().is_some_and(|ratio| ratio > 0.0), "{ratio} in {report}");
    }
    assert_eq!(report["variants"].as_array().unwrap().len(), 7);
    assert_eq!(report["server"]["fsync"], "on");
}

#[test]
fn a_server_that_is_not_there_is_named_without_its_password() {
    let output = bench(&["--store", "postgres://u:CANARY@127.0.0.1:1/db"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("cannot connect to postgres at 127.0.0.1:1/db"), "{stderr}");
    assert!(!stderr.contains("CANARY") && stderr.lines().count() == 1, "{stderr}");
}
