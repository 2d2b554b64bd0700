//! `bench relay` runs every variant on every broker that is there, checks that the broker has all messages, and prints the
//! ratios. No test here looks at a time.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]
#![cfg(feature = "brokers")]

use std::process::{Command, Output};

use oncebox_testkit::skipped;
use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncebox")).args(["bench", "relay"]).args(args).output().unwrap()
}

const SMALL: [&str; 9] = ["--rows", "1200", "--rounds", "1", "--keys", "0,7", "--latency-seconds", "1", "--json"];

fn measures(name: &str, broker: &str) {
    let Ok(url) = std::env::var(format!("ONCEBOX_TEST_{broker}_URL")) else { return skipped(name) };
    let url = if broker == "KAFKA" { format!("kafka://{url}") } else { url };
    let stores = [Some("sqlite:".to_owned()), std::env::var("ONCEBOX_TEST_POSTGRES_URL").ok()];
    for store in stores.into_iter().flatten() {
        let output = bench(&[&["--store", &store, "--broker", &url][..], &SMALL].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let of = &report["brokers"][0];
        for (at, keys) in [0, 7].into_iter().enumerate() {
            let shape = &of["shapes"][at];
            assert_eq!(shape["keys"], keys);
            assert_eq!(shape["variants"].as_array().unwrap().len(), 4);
            for ratio in ["relay_over_fastest", "relay_over_client", "relay_over_sink", "relay_over_hand_relay"] {
                assert!(shape[ratio].as_f64().unwrap() > 0.0, "{shape}");
            }
        }
        for place in ["in_process", "apart"] {
            let latency = &of["latency"][place];
            assert!(latency["p50_ms"].as_f64().unwrap() <= latency["p99_ms"].as_f64().unwrap(), "{latency}");
        }
    }
}

#[test]
fn relay_to_rabbitmq_ends_with_one_object() {
    measures("bench_relay::relay_to_rabbitmq_ends_with_one_object", "RABBITMQ");
}

#[test]
fn relay_to_nats_ends_with_one_object() {
    measures("bench_relay::relay_to_nats_ends_with_one_object", "NATS");
}

#[test]
fn relay_to_kafka_ends_with_one_object() {
    measures("bench_relay::relay_to_kafka_ends_with_one_object", "KAFKA");
}

#[test]
fn a_broker_that_is_not_there_is_named_in_one_line_without_its_password() {
    let all = [
        ("amqp://u:CANARY@127.0.0.1:1/%2f", "127.0.0.1:1"),
        ("nats://u:CANARY@127.0.0.1:1", "127.0.0.1:1"),
        ("kafka://127.0.0.1:1", "127.0.0.1:1"),
        ("http://u:CANARY@h", "--broker must begin with"),
        ("amqp://u:CANARY@:x", "cannot"),
    ];
    for (broker, named) in all {
        let output = bench(&["--store", "sqlite:", "--broker", broker]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(named) && !stderr.contains("CANARY") && stderr.lines().count() == 1, "{stderr}");
    }
}
