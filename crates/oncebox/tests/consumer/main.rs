//! What a consumer promises, on every store. A case is one function, and one line in the list at the end.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

mod after_bridges;
mod alerts;
mod archive;
mod bad_input;
mod batches;
mod behind;
mod breach;
mod breaker;
mod bridges;
mod changed_since;
mod commits;
mod deployments;
mod drain;
mod failures;
mod fixtures;
mod hooks;
mod horizon;
mod identity;
mod journal;
mod marks;
mod new_fingerprints;
mod once;
mod order;
mod own_record;
mod panics;
mod parking;
mod poison;
mod queue;
mod relay;
mod relay_late;
mod relay_suspects;
mod retention;
mod rig;
#[path = "../../../store-sql/tests/common/mod.rs"]
mod sql;
mod stored;
mod unleased;
mod versions;
mod versions_found;

/// Runs each case on each store, as tests named after it in the modules `memory`, `sqlite` and `postgres`.
macro_rules! on_every_store {
    ($($module:ident::$case:ident,)+) => {
        on_every_store!(@ memory, super::fixtures::Memory, $($module::$case,)+);
        on_every_store!(@ sqlite, super::sql::fixtures::SqliteFixture::default(), $($module::$case,)+);
        on_every_store!(@ postgres, super::sql::fixtures::PostgresFixture::default(), $($module::$case,)+);
    };
    (@ $store:ident, $fixture:expr, $($module:ident::$case:ident,)+) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!("consumer::", stringify!($store), "::", stringify!($case));
                    oncebox_testkit::store::run(name, $fixture, super::$module::$case).await;
                }
            )+
        }
    };
}

on_every_store! {
    identity::another_key_under_one_name_is_refused_and_doubles_nothing,
    identity::a_change_that_names_the_former_key_doubles_nothing,
    identity::old_and_new_deployment_side_by_side_double_nothing,
    identity::a_bridge_ends_when_the_horizon_is_past_the_former_key,
    identity::what_runs_notices_that_its_name_is_bound_to_something_else,
    identity::what_runs_with_the_former_key_keeps_the_bridge_up,
    identity::what_was_parked_under_the_former_key_runs_once,
    identity::a_key_that_another_message_had_before_is_not_in_the_way,
    identity::another_order_or_scope_is_refused_unless_the_former_is_named,
    identity::a_change_is_bridged_in_stored_mode,
    once::duplicate_delivery_runs_the_handler_once,
    once::a_business_key_never_meets_the_key_of_a_message,
    once::equal_contents_under_two_order_keys_are_two_messages,
    once::the_content_hash_of_before_is_bridged_by_itself,
    horizon::what_was_forgotten_of_shared_records_is_parked,
    horizon::what_the_archive_knows_is_a_duplicate_for_who_asks_it,
    horizon::an_operation_that_expired_is_known_by_the_archive,
    once::thirty_two_duplicates_at_the_same_instant_run_the_handler_once,
    once::the_same_key_three_times_in_one_batch_runs_once,
    once::a_duplicate_gets_the_stored_outcome,
    once::distinct_messages_both_run,
    once::another_payload_under_the_same_key_is_a_conflict_and_is_not_dropped,
    once::a_business_duplicate_is_told_apart_from_a_transport_duplicate,
    once::a_business_key_claimed_beside_the_message_id_says_which_kind_hit,
    once::each_consumer_has_its_own_record,
    once::consumers_with_global_keys_share_their_records,
    once::a_naturally_idempotent_handler_skips_the_inbox,
    once::an_operation_is_applied_once_to_an_entity,
    once::a_version_is_written_by_one_call,
    failures::a_failure_is_not_remembered_as_a_success,
    failures::a_neighbour_in_the_batch_is_not_blamed,
    failures::a_swallowed_error_is_not_acknowledged,
    failures::a_named_constraint_means_already_applied,
    failures::a_constraint_met_against_a_neighbour_in_the_batch_loses_nothing,
    failures::a_business_rejection_is_recorded_and_not_retried,
    failures::a_panic_in_a_handler_harms_only_its_message,
    failures::a_handler_past_its_deadline_is_ended_and_tried_again,
    failures::a_handler_that_keeps_its_context_commits_nothing,
    bad_input::what_does_not_decode_is_named_and_not_lost,
    bad_input::a_payload_over_the_cap_is_named_and_not_lost,
    bad_input::an_unknown_type_is_named_and_not_lost,
    bad_input::a_message_without_a_key_is_named_and_not_lost,
    bad_input::a_consumer_that_makes_no_sense_does_not_start,
    batches::a_batch_handler_gets_what_waits_in_one_transaction,
    batches::a_failing_batch_is_halved_until_the_culprit_is_alone,
    batches::ordered_batch_handlers_get_consecutive_runs_of_one_type,
    marks::what_fails_often_leaves_its_batch_and_takes_nothing_along,
    marks::nothing_overtakes_a_message_that_left_its_batch,
    marks::a_conflict_behind_a_message_that_left_its_batch_waits,
    commits::an_unknown_commit_that_went_through_is_not_run_again,
    commits::an_unknown_commit_that_did_not_go_through_is_run_again,
    commits::transactions_that_cannot_begin_blame_no_message,
    commits::a_store_that_goes_away_and_returns_loses_nothing,
    commits::random_faults_at_every_seam_lose_and_double_nothing,
    hooks::hooks_run_after_the_commit_and_not_for_a_failure,
    hooks::a_hook_that_asks_for_it_runs_again_on_a_duplicate,
    order::order_is_kept_per_key_under_random_failures,
    order::order_without_an_owner_is_refused_at_start,
    order::a_failed_message_holds_back_only_its_own_key,
    relay::what_a_handler_emits_is_published_with_its_commit,
    relay::an_event_without_an_id_of_its_own_needs_a_claim,
    relay::two_relays_share_an_outbox_and_keep_order,
    relay::a_row_that_commits_late_is_published,
    relay_late::a_row_that_commits_late_does_not_wait_for_the_end_of_a_backlog,
    relay::a_sink_that_is_away_costs_nothing_but_time,
    relay::what_a_sink_refuses_holds_up_only_its_own_key,
    relay::a_relay_that_dies_is_taken_over,
    relay::random_faults_in_a_relay_lose_and_invert_nothing,
    relay::what_was_fetched_ahead_does_not_overtake_what_failed,
    relay::an_idle_relay_commits_nothing_but_its_leases,
    relay::what_was_rolled_back_is_never_published,
    relay::a_relay_whose_store_needs_a_person_ends_and_says_why,
    relay::a_relay_waits_for_a_store_that_comes_back,
    relay::a_relay_gives_back_lanes_when_another_joins,
    relay_suspects::neighbours_wait_while_a_suspect_row_is_proved,
    relay::a_weaker_promise_than_required_is_refused_at_start,
    drain::a_shutdown_finishes_what_runs_and_gives_back_the_rest,
    drain::a_handler_that_never_ends_does_not_hold_up_a_shutdown_forever,
    drain::a_shutdown_does_not_wait_for_a_source_that_opens,
    queue::queued_messages_are_settled_in_their_own_transaction,
    queue::two_processes_share_a_queue_and_keep_order,
    queue::a_dead_process_s_messages_come_again,
    queue::a_queue_of_another_database_is_refused,
    stored::stored_messages_are_acknowledged_before_they_are_handled,
    stored::a_redelivery_of_a_stored_message_runs_once,
    stored::stored_mode_keeps_order_under_random_failures,
    stored::stored_mode_keys_by_the_origin_s_coordinate,
    order::a_contended_head_holds_back_its_key,
    order::nothing_overtakes_a_conflict_of_its_key,
    order::nothing_overtakes_a_message_that_must_wait,
    order::an_order_that_the_source_does_not_know_is_refused,
    failures::a_panic_while_decoding_harms_only_its_message,
    failures::a_handler_during_which_a_store_goes_away_is_judged,
    batches::a_batch_handler_past_its_deadline_is_halved,
    batches::batches_that_get_in_each_other_s_way_shrink,
    hooks::a_hook_that_panics_before_it_begins_harms_nobody,
    commits::an_unknown_commit_counts_once_and_its_copies_are_duplicates,
    commits::an_unknown_commit_on_the_embedded_queue_is_found_to_be_ours,
    bad_input::large_payloads_are_received_a_few_at_a_time,
    commits::a_store_that_lets_in_and_then_fails_is_waited_for,
    queue::a_handler_slower_than_its_lease_keeps_its_message,
    order::nothing_overtakes_a_message_whose_lease_was_lost,
    parking::a_transient_failure_is_tried_again_until_its_attempts_are_used_up,
    parking::a_permanent_failure_is_dead_at_once,
    parking::a_failure_with_an_unknown_effect_is_never_tried_again,
    parking::a_rejection_by_failure_keeps_nothing_and_is_remembered,
    parking::a_handler_that_says_when_is_not_called_before,
    parking::a_redelivery_of_a_parked_message_is_acknowledged_and_runs_once,
    parking::a_message_that_another_worker_applied_meanwhile_is_not_parked,
    parking::a_conflict_that_comes_again_is_parked_once,
    parking::errors_are_classed_by_who_knows_them,
    parking::a_type_with_a_policy_of_its_own_is_tried_by_it,
    parking::a_message_is_dead_when_it_has_been_failing_for_too_long,
    deployments::what_both_deployments_parked_is_applied_once,
    deployments::what_both_deployments_parked_in_order_goes_on,
    deployments::what_two_scopes_parked_is_applied_once,
    deployments::what_is_discarded_is_discarded_for_both_deployments,
    deployments::an_unknown_effect_is_not_tried_by_the_old_one,
    deployments::a_bridge_asks_the_archive,
    deployments::another_scope_keeps_the_horizon,
    deployments::a_conflict_stays_one_under_another_scope,
    deployments::a_change_together_with_an_upgrade_doubles_nothing,
    deployments::another_aggregate_is_refused,
    bridges::what_is_parked_under_a_new_business_key_the_old_deployment_applies,
    bridges::what_is_parked_under_a_new_scope_the_old_deployment_applies,
    bridges::a_discarded_message_leaves_its_intent_to_the_next,
    bridges::what_is_parked_and_was_handled_elsewhere_is_done_with,
    bridges::a_broad_former_key_in_the_archive_hides_no_message,
    bridges::the_archive_of_others_hides_no_message,
    bridges::a_version_that_was_given_up_and_edited_goes_on,
    bridges::an_intent_that_reads_like_a_former_one_is_applied,
    bridges::an_intent_that_reads_like_a_former_one_waits_in_its_place,
    after_bridges::a_checkpoint_ends_no_bridge,
    after_bridges::what_was_forgotten_before_a_change_to_global_keys_is_not_applied,
    after_bridges::what_was_forgotten_before_a_change_to_own_keys_is_not_applied,
    after_bridges::what_was_forgotten_before_a_change_of_key_is_not_applied,
    deployments::a_key_is_used_again_after_the_new_deployment_applied_its_row,
    deployments::a_key_is_used_again_after_the_old_deployment_applied_its_row,
    deployments::what_the_old_deployment_applied_has_no_parked_record,
    bridges::an_edit_under_a_key_of_two_scopes_is_applied,
    versions::what_leaves_its_order_key_wakes_the_next,
    failures::what_another_store_says_harms_one_message,
    own_record::a_copy_of_what_was_handled_is_not_parked_for_its_type,
    own_record::a_message_parked_behind_itself_is_applied,
    own_record::a_replayed_message_and_its_redelivery_that_both_fail_once_are_applied,
    own_record::a_replayed_message_that_waits_for_a_version_is_applied,
    own_record::a_conflict_stays_one_when_fingerprints_change,
    changed_since::a_conflict_of_intents_stays_one_when_fingerprints_change,
    changed_since::a_conflict_under_a_former_key_stays_none_of_its_duplicates,
    changed_since::a_replayed_version_that_gave_up_goes_on,
    changed_since::what_the_old_scope_applied_has_no_parked_record,
    changed_since::what_the_old_scope_applied_has_no_parked_record_beside_another_consumer,
    changed_since::a_message_without_a_former_key_hides_no_horizon,
    changed_since::control_a_row_ends_beside_a_sharing_consumer,
    changed_since::a_row_ends_beside_a_sharing_consumer_with_another_key,
    new_fingerprints::control_conflicts_revived_singly_stay,
    new_fingerprints::conflicts_revived_together_stay,
    new_fingerprints::control_a_conflict_that_was_applied_since_goes,
    new_fingerprints::a_conflict_that_was_applied_since_goes_when_fingerprints_change,
    new_fingerprints::control_a_discard_takes_no_other_message_along,
    new_fingerprints::a_discard_takes_no_other_message_along_when_fingerprints_change,
    new_fingerprints::what_a_former_key_cannot_tell_apart_waits_for_a_person,
    panics::a_panic_while_an_error_is_classed_harms_only_its_message,
    panics::a_panic_in_the_source_of_an_error_harms_only_its_message,
    panics::a_panic_while_an_error_is_dropped_harms_only_its_message,
    panics::a_panic_while_a_handler_is_dropped_harms_only_its_message,
    panics::hooks_that_panic_when_they_are_dropped_harm_nobody,
    panics::a_broken_task_gives_its_messages_back,
    panics::a_message_that_always_breaks_its_task_is_parked,
    panics::a_lease_lost_in_another_store_is_a_failure,
    commits::unknown_commits_in_a_row_are_spaced_out,
    behind::what_follows_a_parked_message_is_applied_in_order_after_it,
    behind::a_dead_message_holds_up_its_key_and_no_other,
    behind::what_cannot_be_read_is_parked_in_its_place,
    behind::a_conflict_is_parked_in_its_place,
    behind::only_so_many_are_parked_behind_one_key,
    breaker::a_dead_dependency_pauses_the_consumer_and_parks_little,
    breaker::a_dead_dependency_does_not_upset_the_order,
    poison::what_kills_its_process_is_parked_and_its_neighbours_are_not,
    poison::what_dies_while_it_only_waits_is_blamed_on_nobody,
    poison::a_suspect_runs_alone_after_its_start_is_noted,
    poison::what_its_source_does_not_count_is_counted,
    poison::what_has_no_key_and_no_place_is_parked_once,
    poison::what_has_an_id_and_no_key_is_parked_by_its_id,
    poison::what_was_parked_and_not_acknowledged_is_applied_once,
    poison::unknown_commits_while_parking_lose_and_double_nothing,
    versions::versions_that_come_in_any_order_are_applied_in_theirs,
    versions::a_gap_that_never_closes_is_given_up,
    versions::versions_that_were_given_up_and_revived_are_applied,
    versions::versions_of_two_types_are_applied_in_order_in_one_batch,
    versions::only_so_many_wait_for_one_gap,
    versions::full_states_are_applied_over_a_gap,
    versions::a_gap_that_must_not_be_is_dead_at_once,
    versions::a_message_without_a_version_is_dead,
    versions::the_next_version_waits_for_a_retry_and_not_for_a_rejection,
    versions_found::the_next_version_does_not_wait_for_a_rejected_one,
    versions_found::the_next_version_does_not_wait_for_a_discarded_one,
    versions_found::the_next_version_waits_for_one_that_is_parked,
    versions_found::versions_that_are_read_from_now_on_go_on,
    versions_found::a_duplicate_makes_nothing_old_that_is_missing,
    versions_found::a_gap_that_must_not_be_closes_all_the_same,
    versions_found::what_waits_apart_holds_nobody_up,
    versions_found::what_waits_apart_for_a_version_holds_nobody_up,
    versions_found::a_gap_looked_at_in_time_is_asked_for,
    versions_found::a_gap_looked_at_late_is_asked_for,
    versions_found::a_replayed_version_is_asked_for,
    versions_found::what_is_missing_next_is_asked_for_too,
    versions_found::a_gap_that_must_not_be_is_told_once,
    alerts::the_owner_is_told_of_what_is_dead_once_it_is,
    alerts::what_is_missing_is_asked_for_before_it_is_given_up,
    horizon::what_was_forgotten_is_parked_and_not_applied_again,
    horizon::what_cannot_have_been_forgotten_is_applied,
    horizon::what_is_too_old_is_parked_in_its_place,
    horizon::what_has_a_version_is_known_by_it,
    retention::random_faults_in_a_runner_lose_and_break_nothing,
    retention::a_step_whose_commit_is_unknown_is_made_again,
    retention::two_runners_at_once_remove_everything_once,
    retention::a_pass_that_is_stopped_on_its_way_is_not_counted,
    retention::what_was_cut_short_goes_on_at_once_and_faster,
    retention::a_runner_works_on_one_connection_of_its_own,
    archive::random_faults_in_a_runner_that_archives_lose_no_key,
    archive::an_archive_goes_after_its_time,
    archive::what_was_made_before_a_checkpoint_is_not_applied,
    stored::what_stored_mode_processed_goes_with_retention,
    journal::the_journal_tells_each_delivery,
    journal::a_journaled_delivery_is_found_by_the_id_of_its_message,
    journal::a_crash_shows_in_the_journal_of_the_next_delivery,
    journal::an_unknown_commit_is_journaled_once,
    journal::a_journal_that_cannot_be_written_fails_no_message,
    journal::a_journal_that_hangs_holds_up_nobody,
    journal::faults_in_the_journal_double_no_entry,
    journal::an_unknown_commit_of_the_journal_is_not_repeated,
    journal::without_a_journal_nothing_is_written,
    journal::stored_mode_journals_both_halves,
    journal::a_journal_goes_after_its_time,
}
