//! The benchmark runs every variant, checks that each did the work, and prints the ratios. No test here looks at a time.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::process::{Command, Output};

use oncebox_testkit::skipped;
use serde_json::Value;

const RATIOS: [&str; 5] =
    ["batch_over_hand_batched", "batch_over_naive", "each_over_naive", "batch_over_bare", "hot_each_over_naive"];

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncebox")).arg("bench").args(args).output().unwrap()
}

/// The object on the last line.
fn report(args: &[&str]) -> Value {
    let output = bench(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(String::from_utf8_lossy(&output.stdout).lines().last().unwrap()).unwrap()
}

/// How many variants there are, and whether each of them and each ratio is there.
fn variants(report: &Value) -> usize {
    for ratio in RATIOS {
        assert!(report["ratios"][ratio].as_f64().is_some_and(|ratio| ratio > 0.0), "{ratio} in {report}");
    }
    let variants = report["variants"].as_array().unwrap();
    for variant in variants {
        let (slowest, fastest) = (variant["slowest"].as_f64().unwrap(), variant["fastest"].as_f64().unwrap());
        let median = variant["messages_per_second"].as_f64().unwrap();
        assert!(0.0 < slowest && slowest <= median && median <= fastest, "{variant}");
        assert!(variant["latency"]["p50_ms"].as_f64().unwrap() <= variant["latency"]["p99_ms"].as_f64().unwrap());
        assert!(variant["commits_per_message"].as_f64().unwrap() > 0.0, "{variant}");
    }
    variants.len()
}

#[test]
fn inbox_on_postgres_ends_with_one_object_and_leaves_no_schema() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("bench::inbox_on_postgres_ends_with_one_object_and_leaves_no_schema");
    };
    let report =
        report(&["inbox", "--store", &url, "--messages", "1000", "--rounds", "2", "--latency-seconds", "1", "--json"]);
    assert_eq!(variants(&report), 11);
    assert_eq!(report["server"]["fsync"], "on");
    assert!(report["variants"][0]["log_bytes_per_message"].as_f64().unwrap() > 0.0);
}

#[test]
fn inbox_on_sqlite_draws_its_bars_and_removes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, svg) = (folder.path().join("bench.db"), folder.path().join("bars.svg"));
    let store = format!("sqlite:{}", file.display());
    let rest = ["--messages", "500", "--rounds", "1", "--latency-seconds", "1", "--json"];
    let report = report(&[&["inbox", "--store", &store, "--svg", svg.to_str().unwrap()][..], &rest].concat());
    assert_eq!(variants(&report), 7);
    assert_eq!(report["server"]["synchronous"], "full");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.matches("<rect").count() == 7, "{drawn}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the picture is left");
}

#[test]
fn growth_prints_a_curve_for_each_kind_of_key() {
    let url = std::env::var("ONCEBOX_TEST_POSTGRES_URL");
    let stores = [Some("sqlite:".to_owned()), url.ok()];
    for store in stores.into_iter().flatten() {
        let report = report(&[
            "growth",
            "--store",
            &store,
            "--rows",
            "0,500,2000",
            "--messages",
            "300",
            "--rounds",
            "1",
            "--json",
        ]);
        for (at, keys) in ["time-ordered", "random"].into_iter().enumerate() {
            let curve = &report["curves"][at];
            assert_eq!(curve["keys"], keys);
            let points = curve["points"].as_array().unwrap();
            assert_eq!(points.iter().map(|point| point["rows"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 500, 2000]);
            assert!(points.iter().all(|point| point["over_empty"].as_f64().unwrap() > 0.0), "{curve}");
        }
    }
}

#[test]
fn memory_is_sampled_while_messages_pass() {
    let report = report(&["memory", "--store", "sqlite:", "--messages", "2000", "--json"]);
    let samples = report["samples"].as_array().unwrap();
    assert!(samples.len() > 1, "{report}");
    assert_eq!(samples.last().unwrap()["messages"], 2000);
}

#[test]
fn a_server_that_is_not_there_is_named_without_its_password() {
    let output = bench(&["inbox", "--store", "postgres://u:CANARY@127.0.0.1:1/db"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("cannot connect to postgres at 127.0.0.1:1/db"), "{stderr}");
    assert!(!stderr.contains("CANARY") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_url_that_names_no_store_is_refused_in_one_line_and_not_repeated() {
    for url in ["CANARY", "mysql://u:CANARY@h/d", "postgres://u:CANARY@h:port/d"] {
        let output = bench(&["inbox", "--store", url]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(!stderr.contains("CANARY") && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn retention_is_measured_beside_consumers() {
    let folder = tempfile::tempdir().unwrap();
    let mut stores = vec![format!("sqlite:{}", folder.path().join("retention.db").display())];
    match std::env::var("ONCEBOX_TEST_POSTGRES_URL") {
        Ok(url) => stores.push(url),
        Err(_) => skipped("bench::retention_is_measured_beside_consumers (postgres)"),
    }
    for store in stores {
        let args = ["retention", "--store", &store, "--rows", "60000", "--messages", "2000", "--rounds", "2", "--json"];
        let report = report(&args);
        let lines = report["handlers"].as_array().unwrap();
        assert_eq!(lines.len(), 2, "{report}");
        for line in lines {
            assert!(line["over_without"].as_f64().unwrap() > 0.0, "{line}");
            assert!(line["removed_per_second"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
}
