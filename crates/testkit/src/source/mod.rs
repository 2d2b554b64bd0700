//! What every source must do: the suite, and the fixture that an adapter supplies.
//!
//! A case is a generic async function in one of this module's files, and one line in the list of
//! [`source_suite!`](crate::source_suite). Cases about leases, counts, coordinates, order and settling in a transaction
//! ask the source's capabilities, and hold it to what it claims.

mod crash;
mod delivery;
mod fixture;
mod leases;
mod order;
mod transaction;

pub use crash::*;
pub use delivery::*;
pub use fixture::{Setup, SourceFixture, run};
pub use leases::*;
pub use order::*;
pub use transaction::*;

/// Runs every case of the source suite over a [`SourceFixture`], as tests named after the cases in a module
/// `delivery`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! source_suite {
    ($fixture:expr) => {
        $crate::source_cases! { delivery, $fixture, [
            what_was_sent_comes_once_and_as_it_was,
            hostile_texts_come_as_they_were_sent,
            no_more_come_than_were_asked_for,
            nothing_comes_when_the_wait_is_over,
            a_wait_ends_when_something_is_sent,
            an_acknowledged_message_never_comes_again,
            each_message_has_a_coordinate_of_its_own,

            a_message_comes_again_when_its_lease_is_over,
            a_released_message_comes_again_after_its_delay,
            a_message_released_without_delay_comes_again_at_once,
            an_extended_delivery_stays_ours,
            a_stale_acknowledgement_leaves_the_message_with_its_new_owner,
            a_stale_release_leaves_the_message_with_its_new_owner,

            messages_of_one_key_come_in_order,
            a_released_message_holds_up_those_behind_it,
            an_unsettled_message_holds_up_those_behind_it,

            what_was_in_hand_comes_again_after_a_crash,
            what_was_in_hand_comes_again_after_a_shutdown,

            an_acknowledgement_commits_with_its_transaction,
            an_acknowledgement_rolls_back_with_its_transaction,
            a_stale_acknowledgement_fences_its_transaction,
        ] }
    };
}

/// Expands a list of cases to tests. An adapter calls [`source_suite!`] instead.
#[doc(hidden)]
#[macro_export]
macro_rules! source_cases {
    ($module:ident, $fixture:expr, [$($case:ident,)+]) => {
        mod $module {
            #[allow(unused_imports, reason = "the fixture may be named by its full path")]
            use super::*;

            $(
                #[::tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    $crate::source::run(name, $fixture, $crate::source::$case).await;
                }
            )+
        }
    };
}
