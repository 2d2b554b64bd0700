//! The matrix itself works: it passes where nothing is wrong, notices what is planted, and says no to nonsense. The
//! whole of it runs by `scripts/crash-matrix`.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::process::{Command, Output};

fn matrix(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crash-matrix")).args(arguments).output().unwrap()
}

fn report(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_row_without_a_bug_is_clean() {
    let row = "sqlite broker each kill plain workers=2";
    let output = matrix(&["run", "--no-postgres", "--no-planted", "--only", row, "--seed", "1", "--json"]);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    for field in [r#""rows":1"#, r#""lost":0"#, r#""doubled":0"#, r#""failed":{}"#] {
        assert!(report.contains(field), "{field} is not in {report}");
    }
}

/// A run that finds nothing to run has proven nothing.
#[test]
fn a_filter_that_matches_nothing_is_refused() {
    let output = matrix(&["run", "--no-postgres", "--only", "no such row"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no row and no planted bug has `no such row` in its name"), "{said}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_planted_bug_is_noticed() {
    let output = matrix(&["run", "--no-postgres", "--only", "planted claim-skipped", "--seed", "1", "--json"]);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    assert!(report.contains(r#""planted":{"total":1,"caught":1"#), "{report}");
}
