//! The example prints what `expected.txt` says, on a real RabbitMQ.

use std::process::Command;

#[test]
fn it_prints_what_it_should() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_RABBITMQ_URL") else {
        return oncebox_testkit::skipped("example-06-two-hops::it_prints_what_it_should");
    };
    let output = Command::new(env!("CARGO_BIN_EXE_example-06-two-hops")).arg(url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), include_str!("../expected.txt"));
}
