//! What operators see and do, on every store. PostgreSQL where `ONCEBOX_TEST_POSTGRES_URL` names a server.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

mod acts;
mod archived;
mod bad_input;
mod dry_runs;
mod edits;
mod memory_fixture;
mod plans;
mod processes;
mod replays;
mod rig;
#[path = "../../../store-sql/tests/common/mod.rs"]
mod sql;
mod statuses;
mod ten_thousand;
mod versions;
mod with_a_consumer;

/// Runs cases on every store, as tests named after them in a module of the store's name.
macro_rules! on_every_store {
    ($($file:ident :: $case:ident,)+) => {
        on_every_store! { memory, crate::memory_fixture::Memory, [$($file::$case,)+] }
        on_every_store! { sqlite, crate::sql::fixtures::SqliteFixture::default(), [$($file::$case,)+] }
        on_every_store! { postgres, crate::sql::fixtures::PostgresFixture::default(), [$($file::$case,)+] }
    };
    ($store:ident, $fixture:expr, [$($file:ident :: $case:ident,)+]) => {
        mod $store {
            #[allow(unused_imports, reason = "the fixture may be named by its full path")]
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    oncebox_testkit::store::run(name, $fixture, crate::$file::$case).await;
                }
            )+
        }
    };
}

on_every_store! {
    acts::messages_are_grouped_listed_and_shown,
    acts::a_look_reads_no_more_than_it_shows,
    acts::an_export_has_a_line_for_each_message,
    acts::a_note_is_written_on_everything_that_matches,
    acts::a_discard_takes_everything_that_matches_and_nothing_that_came_later,
    acts::what_operators_do_is_in_the_audit_log,
    archived::what_is_archived_is_refused_also_by_force,
    archived::what_went_of_shared_records_is_refused,
    archived::records_of_others_do_not_speak_for_keys_of_its_own,
    archived::what_is_older_than_a_checkpoint_is_refused_also_by_force,
    archived::a_checkpoint_goes_forward_and_is_in_the_audit_log,
    archived::an_edit_finds_no_way_around_archive_and_checkpoint,
    archived::removing_records_now_archives_them_and_sweeps_stored_mode,
    archived::a_removal_that_dies_half_way_has_left_an_entry,
    bad_input::mistakes_are_told_and_change_nothing,
    bad_input::payloads_and_secrets_stay_out_of_errors_and_debug,
    dry_runs::a_dry_run_tells_what_the_replay_then_does_and_keeps_nothing,
    dry_runs::a_message_that_is_not_dead_or_not_ours_is_not_dry_run,
    edits::an_edited_message_supersedes_the_old_one,
    edits::an_edit_needs_the_consumers_own_keys,
    plans::each_message_gets_its_forecast,
    plans::what_is_older_than_the_horizon_is_refused_with_both_dates,
    replays::a_canary_that_fails_stops_the_replay,
    replays::too_many_failures_stop_the_replay,
    replays::a_replay_is_paused_resumed_and_cancelled,
    replays::a_replay_keeps_the_order_of_each_key,
    replays::no_more_than_allowed_are_on_their_way,
    statuses::a_replay_that_is_not_over_is_told_behind_newer_ones,
    statuses::dead_messages_are_told_behind_many_that_go_on,
    ten_thousand::killed_half_way_and_carried_on_by_two_others_each_is_applied_once,
    ten_thousand::two_operators_who_replay_the_same_apply_each_once,
    versions::a_plan_forecasts_what_versions_say_and_the_replay_agrees,
    versions::what_waits_too_long_for_a_version_is_forecast_dead_again,
    with_a_consumer::what_a_consumer_quarantined_is_replayed_to_the_mended_one,
    with_a_consumer::what_was_too_old_at_intake_is_replayed_by_force_only,
}

/// Stores that keep the trail of a message.
mod with_trails {
    use crate::sql::fixtures::{PostgresFixture, SqliteFixture};

    on_every_store! { sqlite, SqliteFixture::default(), [archived::the_life_of_a_message_ends_in_the_archive,] }
    on_every_store! { postgres, PostgresFixture::default(), [archived::the_life_of_a_message_ends_in_the_archive,] }
}
