//! The suites of the test kit, on both stores.

#![cfg(all(feature = "sqlite", feature = "postgres"))]

mod common;

mod sqlite {
    use super::common::fixtures::SqliteFixture;

    oncebox_testkit::store_suite!(SqliteFixture::default());
}

mod postgres {
    use super::common::fixtures::PostgresFixture;

    oncebox_testkit::store_suite!(PostgresFixture::default());
}

/// Two owners of one order key within a few milliseconds: the crash matrix meets that too rarely to notice this bug.
#[test]
fn a_look_from_before_a_wait_is_noticed() {
    const CASE: &str = "postgres::parked::a_claim_that_waited_sees_what_was_parked_meanwhile";
    if std::env::var_os("ONCEBOX_TEST_POSTGRES_URL").is_none() {
        return oncebox_testkit::skipped("conformance::a_look_from_before_a_wait_is_noticed");
    }
    let run = |bugs: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this test has a file"));
        command.args(["--exact", CASE]).env("ONCEBOX_PLANTED", bugs);
        command.output().expect("the case can be run")
    };
    let clean = run("");
    assert!(clean.status.success() && String::from_utf8_lossy(&clean.stdout).contains("1 passed"));
    if oncebox_core::planted::ARE_BUILT_IN {
        assert!(!run("stale-look-at-parked").status.success(), "it passed with the bug planted");
    }
}
