//! What every sink must do: the suite, and the fixture that an adapter supplies.
//!
//! A case is a generic async function in `cases`, and one line in the list of [`sink_suite!`](crate::sink_suite).

mod cases;
mod fixture;

pub use cases::*;
pub use fixture::{Setup, SinkFixture, run};

/// Runs every case of the sink suite over a [`SinkFixture`], as tests named after the cases in a module `publishing`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! sink_suite {
    ($fixture:expr) => {
        $crate::sink_cases! { publishing, $fixture, [
            what_is_published_arrives_once_and_as_it_was,
            hostile_texts_arrive_as_they_were_published,
            headers_named_like_something_else_stay_headers,
            a_batch_arrives_in_its_order,
            many_are_confirmed_and_arrive,
            nothing_published_is_nothing_wrong,
            a_missing_destination_is_named_and_harms_no_other,
            a_message_that_is_too_large_is_refused_and_harms_no_other,
            what_is_confirmed_comes_before_what_is_not,
            an_id_that_the_broker_knows_arrives_once,
        ] }
    };
}

/// Expands a list of cases to tests. An adapter calls [`sink_suite!`] instead.
#[doc(hidden)]
#[macro_export]
macro_rules! sink_cases {
    ($module:ident, $fixture:expr, [$($case:ident,)+]) => {
        mod $module {
            #[allow(unused_imports, reason = "the fixture may be named by its full path")]
            use super::*;

            $(
                #[::tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    $crate::sink::run(name, $fixture, $crate::sink::$case).await;
                }
            )+
        }
    };
}
