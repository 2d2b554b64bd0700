//! The simulation goes red for every bug that can be planted where it looks.

#![cfg(feature = "planted-bugs")]
#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::process::{Command, Output};

/// Enough for the rarest of them to show several times over.
const SEEDS: &str = "1000";

fn simulate(planted: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox-sim"));
    command.args(["--seeds", SEEDS, "--fail-fast", "--json"]).env("ONCEBOX_PLANTED", planted);
    command.output().unwrap()
}

/// Each with the promise that it breaks.
#[test]
fn a_planted_bug_is_found() {
    for (bug, breaks) in [
        ("claim-skipped", &["doubled", "record", "engine"][..]),
        // It commits for itself, and looks no doubt up.
        ("ack-before-commit", &["lost", "conflict", "unordered", "doubt"]),
        ("stored-acknowledged-first", &["lost", "conflict", "unordered", "doubt"]),
        ("rolled-back-batch-acknowledged", &["lost"]),
        ("hook-before-commit", &["hook"]),
        ("lane-order-broken", &["unordered"]),
        ("unknown-as-done", &["lost", "doubt"]),
        ("unknown-as-failed", &["doubt"]),
        ("fingerprint-ignored", &["conflict"]),
        ("parked-duplicate-of-itself", &["lost", "record"]),
        ("no-fence", &["fence"]),
        ("no-renewal", &["lease"]),
    ] {
        let output = simulate(bug);
        assert_eq!(output.status.code(), Some(1), "{bug} was not found in {SEEDS} seeds");
        let last = String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().to_owned();
        let totals: serde_json::Value = serde_json::from_str(&last).unwrap();
        let broken = totals["wrongs"].as_object().unwrap();
        assert!(breaks.iter().any(|kind| broken.contains_key(*kind)), "{bug} broke {broken:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let command = format!("cargo run -p oncebox-sim -- --seed {} --trace", totals["first_failed"]);
        assert!(told.contains(&command), "{bug}: the command that repeats it is not told: {told}");
    }
}

/// Or the above would prove nothing.
#[test]
fn without_one_nothing_is_found() {
    assert_eq!(simulate("").status.code(), Some(0));
}
