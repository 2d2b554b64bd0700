//! What the outbox of every store must do: rows that commit with the business, lanes with epochs, order behind what is set
//! aside.
//!
//! Leases run by the setup's clock; a case lets time pass with [`Setup::advance`](crate::store::Setup::advance).

mod aside;
mod behind;
mod emit;
mod ends;
mod fetch;
mod lanes;
mod rows;
mod steps;

pub use aside::*;
pub use behind::*;
pub use emit::*;
pub use ends::*;
pub use fetch::*;
pub use lanes::*;
pub use rows::*;

/// Runs every case of the outbox suite over a [`StoreFixture`](crate::store::StoreFixture) whose store keeps an outbox, in
/// a module `outbox`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! outbox_suite {
    ($fixture:expr) => {
        $crate::store_cases! { outbox, $fixture, [
            rows_are_emitted_with_the_business_write,
            rows_emitted_in_a_rolled_back_transaction_never_were,
            rows_emitted_since_the_mark_go_with_it,
            an_id_that_is_not_sent_yet_is_refused,
            an_id_twice_in_one_call_is_refused,
            an_id_that_is_set_aside_is_refused,
            an_id_is_free_once_its_row_was_sent,
            what_has_no_id_or_no_topic_is_refused,
            a_commit_that_emitted_wakes_whoever_waits,
            a_commit_that_emitted_nothing_wakes_nobody,
            an_announcement_of_rows_wakes_whoever_waits,

            rows_are_fetched_in_the_order_they_were_emitted,
            a_fetch_takes_nothing,
            a_fetch_returns_at_most_what_was_asked_for,
            a_fetch_leaves_out_topics,
            a_fetch_leaves_out_rows_that_are_in_hand,
            a_row_that_commits_late_is_found,
            many_rows_are_fetched_from_all_lanes_the_oldest_of_each_first,
            many_rows_of_one_lane_are_fetched_together,

            a_message_to_publish_comes_as_it_was_emitted,
            hostile_topics_and_messages_come_as_they_were_emitted,
            a_large_payload_comes_as_it_was_emitted,

            the_outbox_has_one_queue_of_lanes,
            a_fetch_returns_only_rows_of_lanes_that_are_held,
            a_stale_end_is_fenced_and_ends_nothing,
            a_stale_owner_sets_nothing_aside,
            one_stale_lane_fences_the_whole_end,

            a_row_that_was_sent_never_comes_again,
            an_end_that_rolled_back_leaves_the_row,
            a_row_that_is_ended_twice_is_no_error,
            a_row_that_is_kept_is_out_of_the_way,
            what_was_sent_long_ago_is_swept_a_few_at_a_time,
            a_sweep_leaves_what_is_not_sent,
            the_backlog_counts_what_is_left,

            a_refused_row_is_set_aside_with_its_reason,
            what_is_set_aside_is_paged,
            a_row_that_is_set_aside_can_be_tried_again,
            a_row_that_is_set_aside_can_be_skipped,
            what_is_not_set_aside_is_neither_tried_again_nor_skipped,
            an_act_that_rolled_back_changes_nothing,

            a_row_set_aside_holds_up_its_topic_and_key_and_no_other,
            a_row_without_an_order_key_holds_up_nobody,
            what_is_emitted_later_waits_too,
            what_waits_goes_on_in_order_after_a_skip,
            what_waits_comes_after_the_row_that_is_tried_again,
            a_row_that_is_refused_again_holds_up_the_rest_again,
            two_rows_set_aside_hold_up_until_both_are_gone,
            a_row_that_waits_can_still_be_ended,
            many_rows_wait_and_all_go_on,
            nothing_waits_for_a_row_that_is_gone,
        ] }
    };
}
