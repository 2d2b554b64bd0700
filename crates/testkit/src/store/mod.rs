//! What every store must do: the suites [`inbox`], [`queue`], [`parked`], [`versions`], [`offsets`], [`quarantine`] and
//! [`outbox`], and the fixture that an adapter supplies.
//!
//! A case is a generic async function in one of the suites' files, and one line in the suite's list
//! ([`inbox_suite!`](crate::inbox_suite), [`queue_suite!`](crate::queue_suite), [`parked_suite!`](crate::parked_suite),
//! [`versions_suite!`](crate::versions_suite), [`offsets_suite!`](crate::offsets_suite), [`quarantine_suite!`](crate::quarantine_suite),
//! [`outbox_suite!`](crate::outbox_suite)).

mod fixture;
pub mod inbox;
pub mod offsets;
pub mod outbox;
pub mod parked;
pub mod quarantine;
pub mod queue;
mod steps;
pub mod versions;

pub use fixture::{DbOf, Setup, StoreFixture, run};

/// Runs every case of the store suites over a fixture, as tests named after the cases in the modules `inbox`,
/// `queue`, `parked`, `versions`, `offsets`, `quarantine` and `outbox`. A store without one of these roles runs the suites of the others.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! store_suite {
    ($fixture:expr) => {
        $crate::inbox_suite!($fixture);
        $crate::queue_suite!($fixture);
        $crate::parked_suite!($fixture);
        $crate::quarantine_suite!($fixture);
        $crate::versions_suite!($fixture);
        $crate::offsets_suite!($fixture);
        $crate::outbox_suite!($fixture);
    };
}

/// Expands a list of cases to tests. An adapter calls [`store_suite!`] and its siblings instead.
#[doc(hidden)]
#[macro_export]
macro_rules! store_cases {
    ($suite:ident, $fixture:expr, [$($case:ident,)+]) => {
        mod $suite {
            #[allow(unused_imports, reason = "the fixture may be named by its full path")]
            use super::*;

            $(
                #[::tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    $crate::store::run(name, $fixture, $crate::store::$suite::$case).await;
                }
            )+
        }
    };
}
