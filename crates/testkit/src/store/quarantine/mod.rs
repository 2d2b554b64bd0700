//! What every store must let an operator do: see what is parked, discard, revive and edit it, run replays that outlive
//! their process, and keep the audit log, the horizon, the archive, the checkpoint and the journal.

mod acts;
mod archive;
mod bindings;
mod edits;
mod history;
mod journal;
mod received;
mod replays;
mod rows;
mod spared;
mod steps;

pub use acts::*;
pub use archive::*;
pub use bindings::*;
pub use edits::*;
pub use history::*;
pub use journal::*;
pub use received::*;
pub use replays::*;
pub use rows::*;
pub use spared::*;

/// Runs every case of the quarantine suite over a [`StoreFixture`](crate::store::StoreFixture) whose store an operator
/// can work on, in a module `quarantine`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! quarantine_suite {
    ($fixture:expr) => {
        $crate::store_cases! { quarantine, $fixture, [
            a_parked_message_is_shown_as_it_came,
            pages_follow_the_order_of_parking,
            causes_are_counted,
            a_note_is_kept,
            records_are_read_without_a_claim,
            a_row_behind_a_dead_one_is_held_up,

            a_discarded_message_is_rejected_for_its_duplicates,
            a_discarded_conflict_leaves_the_record,
            a_discarded_row_takes_along_a_record_that_came_later,
            a_discarded_message_is_rejected_in_both_scopes,
            a_shared_record_is_nothing_to_a_consumer_with_keys_of_its_own,
            what_is_parked_again_during_a_discard_has_a_row,
            a_discard_that_rolled_back_never_was,
            a_discard_fences_off_whoever_leased_the_row,
            a_message_in_a_handler_is_passed_over,
            a_discard_lets_the_next_of_its_order_key_go,
            a_revived_message_is_due_at_once,
            only_dead_messages_are_revived,
            a_dead_message_is_taken_in_hand_within_a_transaction,
            revived_messages_keep_their_order,
            a_message_revived_by_many_at_once_is_revived_once,

            an_edited_message_takes_the_place_of_the_old_one,
            an_edit_under_the_same_key_keeps_the_record,
            an_edit_under_the_same_key_of_two_scopes_keeps_both_records,
            an_edit_to_a_key_that_is_taken_changes_nothing,
            a_message_that_is_not_dead_is_not_edited,

            a_replay_comes_back_as_it_was_saved,
            a_replay_is_held_by_one,
            revived_messages_are_counted_where_they_are,
            what_others_take_from_a_replay_is_withdrawn,
            replays_that_ended_long_ago_are_removed,
            open_replays_are_found_behind_others,

            a_binding_is_kept_with_its_consumer,
            a_binding_that_rolled_back_never_was,
            of_two_that_change_a_binding_the_second_sees_the_first,
            a_name_is_bound_by_one_of_many_starts,
            a_raised_horizon_never_goes_back,

            the_audit_log_keeps_what_was_committed,
            expiry_moves_the_horizon_and_spares_what_is_parked,
            a_pass_of_many_steps_finds_every_old_record,
            two_that_expire_at_once_do_no_harm,
            an_expiry_that_rolled_back_never_was,
            young_records_are_not_deleted,
            whoever_claims_what_expires_sees_the_horizon,
            a_horizon_never_goes_back,
            shared_records_stay_where_any_consumer_parked,
            what_an_open_replay_put_back_stays,

            keys_of_records_that_went_are_archived,
            keys_are_archived_only_where_it_is_asked_for,
            an_archive_that_rolled_back_never_was,
            shared_keys_are_archived_for_everyone,
            an_archive_is_shortened_in_steps,
            a_checkpoint_never_goes_back,
            processed_messages_of_stored_mode_go,
            young_processed_messages_stay,

            a_delivery_is_found_by_key_and_by_id,
            the_newest_entries_come_first_and_are_bounded,
            an_entry_bears_whatever_brokers_send,
            entries_that_rolled_back_never_were,
            old_entries_go_in_steps,
        ] }
    };
}
