//! The example prints what `expected.txt` says.

use std::process::Command;

#[test]
fn it_prints_what_it_should() {
    let output = Command::new(env!("CARGO_BIN_EXE_example-04-outbox-in-your-own-transaction")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), include_str!("../expected.txt"));
}
