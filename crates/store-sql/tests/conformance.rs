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
