//! What the inbox of every store must do: one key, one fate, in the same transaction as the business.

mod claims;
mod consumers;
mod keys;
mod outcomes;
mod races;
mod transactions;

pub use claims::*;
pub use consumers::*;
pub use keys::*;
pub use outcomes::*;
pub use races::*;
pub use transactions::*;

/// Runs every case of the inbox suite over a [`StoreFixture`](crate::store::StoreFixture), in a module `inbox`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! inbox_suite {
    ($fixture:expr) => {
        $crate::store_cases! { inbox, $fixture, [
            a_fresh_key_is_fresh,
            a_committed_key_is_a_duplicate,
            a_rolled_back_claim_never_was,
            a_dropped_transaction_rolls_back,
            an_unclaimed_key_is_fresh_again,
            unclaiming_leaves_what_others_committed,
            a_conflict_is_told_apart_from_a_duplicate,
            another_fingerprint_scheme_is_no_conflict,
            a_batch_of_claims_is_answered_in_its_order,
            an_empty_batch_is_answered_with_nothing,
            one_key_in_two_consumers_is_two_records,
            the_hash_of_the_message_id_is_kept,

            a_claim_alone_counts_as_applied_with_no_result,
            every_kind_of_outcome_comes_back_marked_as_replayed,
            a_result_comes_back_byte_for_byte,
            the_last_recorded_outcome_counts,
            an_outcome_rolls_back_with_its_claim,
            only_the_claiming_transaction_records_an_outcome,

            business_writes_commit_with_the_claim,
            business_writes_roll_back_with_the_claim,
            a_dropped_transaction_takes_its_business_writes_along,
            nothing_is_seen_before_the_commit,
            a_session_that_came_back_serves_the_next_transaction,
            a_mark_is_come_back_to,
            a_mark_ends_with_its_transaction,
            a_swallowed_error_never_parts_a_claim_from_its_effect,
            a_violated_unique_constraint_is_told_by_its_name,
            an_error_of_someone_else_is_not_read,
            an_abandoned_transaction_leaves_nothing_once_it_is_resolved,

            a_second_claim_waits_and_learns_that_the_first_committed,
            a_second_claim_waits_and_is_fresh_if_the_first_rolled_back,
            a_second_claim_is_fresh_if_the_first_was_dropped,
            a_wait_beyond_the_lock_wait_is_contended,
            one_of_many_claims_at_once_takes_effect,
            batches_in_opposite_order_lose_no_claim,
            a_deadlock_is_contended_and_passes_when_run_again,

            hostile_keys_stay_distinct,
            ten_thousand_random_keys_stay_distinct,

            a_consumer_keeps_its_id,
            different_names_get_different_ids,
            a_consumer_registered_by_many_at_once_gets_one_id,
            two_handles_on_one_store_are_one_store,
            two_fresh_stores_are_two_stores,
        ] }
    };
}
