//! What the queues of every store must do: rows leased with fences, lanes owned with epochs.
//!
//! Leases run by the setup's clock; a case lets time pass with [`Setup::advance`](crate::store::Setup::advance).

mod enqueue;
mod lanes;
mod leases;
mod messages;
mod order;
mod queues;
mod steps;

pub use enqueue::*;
pub use lanes::*;
pub use leases::*;
pub use messages::*;
pub use order::*;
pub use queues::*;

/// Runs every case of the queue suite over a [`StoreFixture`](crate::store::StoreFixture) whose store keeps queues, in
/// a module `queue`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! queue_suite {
    ($fixture:expr) => {
        $crate::store_cases! { queue, $fixture, [
            a_queue_keeps_its_id,
            a_queue_opened_by_many_at_once_gets_one_id,
            queues_stay_apart,
            lanes_change_only_while_the_queue_is_empty,
            lanes_held_before_a_change_lease_nothing_after_it,
            an_announcement_wakes_whoever_waits,

            what_was_enqueued_is_leased_in_order,
            an_enqueue_that_rolled_back_never_was,
            a_key_is_enqueued_once,
            a_key_twice_in_one_call_is_enqueued_once,
            a_key_enqueued_by_two_at_once_is_enqueued_once,
            a_key_stays_known_while_its_row_is_kept,
            the_key_of_a_rolled_back_enqueue_is_free,

            a_message_comes_back_as_it_was_sent,
            hostile_attributes_come_back_as_they_were_sent,
            a_large_payload_comes_back_byte_for_byte,
            what_cannot_be_kept_is_refused_and_never_altered,

            a_leased_row_is_hidden,
            an_expired_lease_makes_a_row_visible_with_a_higher_fence,
            a_lease_that_rolled_back_never_was,
            a_settled_row_never_comes_again,
            a_settle_that_rolled_back_leaves_the_row,
            a_stale_settle_is_fenced_and_changes_nothing,
            one_stale_row_fences_the_whole_settle,
            a_row_settled_twice_is_fenced,
            a_released_row_comes_again_after_its_delay,
            a_stale_release_leaves_the_row_with_its_new_owner,
            an_extended_lease_runs_longer,
            a_stale_extension_leaves_the_row_with_its_new_owner,
            rows_leased_by_many_at_once_go_to_one_each,

            rows_of_one_key_are_leased_in_order,
            a_delayed_row_blocks_its_key_and_no_other,
            a_leased_row_blocks_its_key_and_no_other,

            a_single_owner_holds_all_lanes,
            two_owners_share_the_lanes_fairly,
            a_lane_is_held_by_one_owner,
            lanes_held_in_a_rolled_back_transaction_are_not_held,
            a_lease_takes_only_from_lanes_that_are_held,
            an_expired_lane_leases_nothing,
            expired_lanes_are_taken_over_with_a_higher_epoch,
            the_old_owner_leases_and_settles_nothing_after_a_takeover,
            lanes_that_were_left_can_be_taken_at_once,
        ] }
    };
}
