//! What every store must do with messages that are set aside: rows leased with fences when they are due, order kept by
//! waiting, records that go from parked to claimed and back, and starts that are counted.
//!
//! Leases and delays run by the setup's clock; a case lets time pass with
//! [`Setup::advance`](crate::store::Setup::advance).

mod gaps;
mod leases;
mod messages;
mod order;
mod records;
mod rows;
mod starts;
mod steps;
mod turns;

pub use gaps::*;
pub use leases::*;
pub use messages::*;
pub use order::*;
pub use records::*;
pub use rows::*;
pub use starts::*;
pub use turns::*;

/// Runs every case of the parked suite over a [`StoreFixture`](crate::store::StoreFixture) whose store can set messages
/// aside, in a module `parked`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! parked_suite {
    ($fixture:expr) => {
        $crate::store_cases! { parked, $fixture, [
            a_parked_message_comes_back_as_it_came,
            a_parked_hostile_message_comes_back_as_it_came,
            a_large_parked_message_comes_back_byte_for_byte,
            words_that_a_text_cannot_hold_do_not_stop_the_parking,
            what_is_known_of_a_row_comes_back,

            a_message_is_parked_once,
            another_content_is_parked_beside_it,
            the_same_twice_in_one_call_is_parked_once,
            a_message_parked_by_two_at_once_is_parked_once,
            parking_that_rolled_back_never_was,
            parked_rows_of_consumers_stay_apart,
            empty_calls_are_answered_with_nothing,

            a_row_is_due_after_its_delay,
            the_longest_due_are_leased_first,
            a_dead_row_is_never_due,
            a_parked_row_in_hand_is_hidden,
            an_expired_lease_gives_a_parked_row_a_higher_fence,
            a_lease_of_a_parked_row_that_rolled_back_never_was,
            an_ended_row_never_comes_again,
            an_end_that_rolled_back_leaves_the_row,
            a_stale_end_is_fenced_and_changes_nothing,
            a_stale_verdict_is_fenced_and_changes_nothing,
            one_stale_parked_row_fences_the_whole_call,
            a_row_that_was_put_back_comes_with_its_new_attempts,
            a_row_that_was_put_back_is_not_in_hand_any_more,
            a_row_that_was_put_back_dead_never_comes,
            a_released_parked_row_comes_again_after_its_delay,
            a_stale_release_leaves_a_parked_row_alone,
            an_extended_lease_of_a_parked_row_runs_longer,
            a_stale_extension_leaves_a_parked_row_alone,
            many_parked_rows_go_to_one_each,

            only_the_first_row_of_an_order_key_is_leased,
            a_row_behind_comes_when_the_first_is_gone,
            a_dead_row_holds_up_those_behind_it,
            a_row_that_waits_for_a_gap_holds_nobody_up,
            a_row_that_turns_to_a_gap_lets_the_next_go,
            an_order_key_is_blocked_while_a_row_of_it_is_there,
            a_claim_hides_no_blocked_order_key,
            a_claim_that_waited_sees_what_was_parked_meanwhile,
            a_claim_that_waited_for_a_moment_sees_it_too,
            what_blocks_an_order_key_is_counted,
            long_and_hostile_order_keys_block_only_themselves,
            an_order_key_blocks_in_its_consumer_only,
            an_end_that_is_not_committed_lets_nobody_pass,
            no_two_rows_of_an_order_key_are_in_hand_at_once,

            a_row_that_was_found_behind_keeps_its_turn,
            a_row_parked_while_the_first_ends_comes,
            a_row_found_behind_while_the_first_ends_comes,
            rows_parked_while_others_end_all_come,

            a_claim_of_a_parked_message_says_so,
            a_parked_record_is_reclaimed_once,
            only_parked_records_are_reclaimed,
            a_batch_of_reclaims_is_answered_in_its_order,
            a_reclaim_that_rolled_back_leaves_it_parked,
            a_reclaimed_record_counts_as_applied_with_no_result,
            a_reclaimed_record_takes_an_outcome,
            an_unclaimed_reclaim_is_parked_as_before,
            a_second_reclaim_waits_and_learns_that_the_first_committed,
            a_second_reclaim_waits_and_succeeds_if_the_first_rolled_back,
            reclaims_in_opposite_order_both_end,
            a_row_that_was_there_before_its_record_owns_it,
            a_row_whose_record_says_parked_is_not_ended,
            a_row_that_ends_leaves_no_parked_record,
            a_shared_record_of_another_row_stays_parked,

            starts_are_counted_over_transactions,
            a_start_that_rolled_back_is_not_counted,
            forgotten_starts_begin_anew,
            starts_of_other_keys_and_consumers_stay_apart,
            starts_noted_at_once_are_all_counted,
            a_death_while_waiting_clears_the_starts,
            those_who_wait_at_the_same_time_clear_nothing,

            rows_that_wait_for_a_gap_are_counted,
            rows_that_wait_for_a_gap_are_woken,
            a_wake_that_rolled_back_wakes_nobody,
            a_row_in_hand_is_not_woken,
            what_gave_up_a_gap_holds_nobody_up,
            what_begins_to_wait_for_a_version_waits_under_its_aggregate,
            what_had_no_order_key_has_none_after_it_waited_for_a_version,
            a_row_tells_since_when_it_waits_for_a_version,
            long_and_hostile_order_keys_wake_only_themselves,
            leases_that_nobody_gave_back_are_counted,
        ] }
    };
}
