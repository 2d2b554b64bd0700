//! Every metric, with its name and its meaning. `docs/metrics.md` has the same list, and a test compares them.
//!
//! Labels are names from the file (consumers, types that have handlers) and words of ours: their number is bounded by the
//! file. What is not known has no sample; it is never 0.

use oncebox::consumer::Snapshot;
use oncebox::counting::Overview;
use oncebox::relay::RelaySnapshot;
use oncebox::{Clock as _, SystemClock, Timestamp};

use super::text::{Kind, Text};

/// A counter of consumers.
type OfConsumer = (&'static str, &'static str, fn(&Snapshot) -> u64);

const CONSUMER_COUNTERS: &[OfConsumer] = &[
    ("oncebox_deliveries_total", "Arrivals from the source, each redelivery included.", |s| s.deliveries),
    (
        "oncebox_business_duplicates_total",
        "Messages that another one with the same business key had made superfluous.",
        |s| s.business_duplicates,
    ),
    (
        "oncebox_conflicts_total",
        "Messages whose key belongs to another message with other content; each is parked.",
        |s| s.conflicts,
    ),
    ("oncebox_too_old_total", "Messages from before the horizon of the consumer; each is parked.", |s| s.too_old),
    ("oncebox_failures_total", "Attempts that failed, each judged alone.", |s| s.failures),
    ("oncebox_retries_total", "Arrivals of messages that had been parked.", |s| s.retried),
    ("oncebox_dead_total", "Messages that were parked for a person.", |s| s.dead),
    ("oncebox_held_back_total", "Arrivals sent back because as many of their order key are parked as may be.", |s| {
        s.held_back
    }),
    ("oncebox_suspects_total", "Messages that may have killed their process, each tried alone.", |s| s.suspects),
    ("oncebox_pauses_total", "Times that the consumer paused because most messages failed.", |s| s.breaker_opened),
    ("oncebox_released_total", "Deliveries given back without blame.", |s| s.released),
    ("oncebox_contended_total", "Transactions rolled back because others were in the way.", |s| s.contended),
    ("oncebox_commits_total", "Transactions that committed.", |s| s.commits),
    ("oncebox_unknown_commits_total", "Commits whose answer was lost; each was looked up.", |s| s.unknown_commits),
    ("oncebox_leases_lost_total", "Deliveries that were taken over before the message was done.", |s| s.leases_lost),
    ("oncebox_journal_entries_total", "Deliveries that were written into the journal, where one is kept.", |s| {
        s.journaled
    }),
    ("oncebox_journal_lost_total", "Deliveries that should be in the journal and are not.", |s| s.journal_lost),
];

/// A counter of the relay.
type OfRelay = (&'static str, &'static str, fn(&RelaySnapshot) -> u64);

const RELAY_COUNTERS: &[OfRelay] = &[
    ("oncebox_relay_published_total", "Messages that the broker confirmed.", |s| s.published),
    ("oncebox_relay_failed_total", "Messages that the broker did not confirm, to be published again.", |s| s.failed),
    ("oncebox_relay_refused_total", "Messages that the broker refused; each is set aside for a person.", |s| {
        s.set_aside
    }),
    ("oncebox_relay_batches_total", "Batches published.", |s| s.batches),
    ("oncebox_relay_lanes_lost_total", "Batches whose lane had a new owner, who publishes them again.", |s| {
        s.lanes_lost
    }),
];

/// The whole text; `stuck`: whether the backlog of each part does not shrink.
pub(super) fn render(overview: &Overview, stuck: &[(String, bool)]) -> String {
    let mut text = Text::default();
    process(&mut text, overview);
    consumers(&mut text, overview);
    waiting(&mut text, overview);
    let help = "Whether a backlog does not shrink, as /readyz judges it: 1 if so.";
    let mut backlogs = text.family("oncebox_backlog_stuck", Kind::Gauge, help);
    for (part, is_stuck) in stuck {
        backlogs.sample(&[("part", part)], *is_stuck);
    }
    relay(&mut text, overview);
    retention(&mut text, overview, SystemClock.now());
    text.into_string()
}

fn process(text: &mut Text, overview: &Overview) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.family("oncebox_build_info", Kind::Gauge, "1, with the version.").sample(&version, true);
    let mut up = text.family("oncebox_store_up", Kind::Gauge, "Whether the store answered the last time.");
    if let Some(store) = overview.store() {
        up.sample(&[], store.is_ok());
    }
    let (done, failed) = overview.flushes();
    let mut flushes =
        text.family("oncebox_flushes_total", Kind::Counter, "Times that counters were written to the store.");
    flushes.sample(&[("result", "ok")], done);
    flushes.sample(&[("result", "failed")], failed);
}

fn consumers(text: &mut Text, overview: &Overview) {
    let seen: Vec<(&str, Snapshot)> =
        overview.consumers().iter().map(|(name, stats)| (name.as_str(), stats.snapshot())).collect();
    for (name, help, read) in CONSUMER_COUNTERS {
        let mut family = text.family(name, Kind::Counter, help);
        for (consumer, stats) in &seen {
            family.sample(&[("consumer", consumer)], read(stats));
        }
    }
    let mut outcomes = text.family("oncebox_outcomes_total", Kind::Counter, "Messages that were done, by outcome.");
    for (consumer, stats) in &seen {
        for (outcome, count) in [
            ("applied", stats.handled.saturating_sub(stats.rejected)),
            ("rejected", stats.rejected),
            ("already_applied", stats.already_applied),
            ("stale", stats.stale),
            ("same_version", stats.same_version),
        ] {
            outcomes.sample(&[("consumer", consumer), ("outcome", outcome)], count);
        }
    }
    let mut parked =
        text.family("oncebox_parked_total", Kind::Counter, "Messages that were parked, by what they wait for.");
    for (consumer, stats) in &seen {
        for (waits, count) in [("retry", stats.parked), ("turn", stats.parked_behind), ("gap", stats.gaps)] {
            parked.sample(&[("consumer", consumer), ("waits_for", waits)], count);
        }
    }
    let help = "Duplicates, by message type and likely cause.";
    let mut duplicates = text.family("oncebox_duplicates_total", Kind::Counter, help);
    for (consumer, stats) in overview.consumers() {
        for of in stats.duplicates() {
            duplicates.sample(&[("consumer", consumer), ("type", &of.kind), ("cause", of.cause.name())], of.count);
        }
    }
    let mut seconds = text.family("oncebox_handler_seconds", Kind::Histogram, "How long calls of handlers took.");
    for (consumer, stats) in overview.consumers() {
        let took = stats.handler_seconds();
        seconds.histogram(&[("consumer", consumer)], &took.buckets, took.count, took.sum);
    }
    let mut up = text.family("oncebox_consumer_up", Kind::Gauge, "Whether the consumer runs and waits for nothing.");
    for ((consumer, stats), (_, now)) in overview.consumers().iter().zip(&seen) {
        up.sample(&[("consumer", consumer)], stats.is_running() && now.waiting_for.is_none());
    }
    let mut in_hand = text.family("oncebox_in_hand", Kind::Gauge, "Messages received and not settled.");
    for (consumer, stats) in &seen {
        in_hand.sample(&[("consumer", consumer)], stats.in_hand);
    }
}

/// What waits, as far as it is known.
fn waiting(text: &mut Text, overview: &Overview) {
    let in_store = overview.in_store();
    let known: Vec<_> = overview
        .consumers()
        .iter()
        .filter_map(|(name, stats)| overview.backlog(stats).map(|backlog| (name.as_str(), backlog)))
        .collect();
    let help = "Messages that wait at the source; of a queue in the store, 10000 stands for that many or more.";
    let mut backlogs = text.family("oncebox_backlog", Kind::Gauge, help);
    for (consumer, backlog) in &known {
        if let Some(messages) = backlog.messages {
            backlogs.sample(&[("consumer", consumer)], messages);
        }
    }
    let help = "How long the oldest message waits at the source; 0 if none does.";
    let mut oldest = text.family("oncebox_oldest_seconds", Kind::Gauge, help);
    for (consumer, backlog) in &known {
        let none_waits = (backlog.messages == Some(0)).then_some(0);
        if let Some(seconds) = backlog.oldest_seconds.or(none_waits) {
            oldest.sample(&[("consumer", consumer)], seconds);
        }
    }
    let help = "Messages that are parked now, by what they wait for; 10000 stands for that many or more.";
    let mut parked = text.family("oncebox_parked_now", Kind::Gauge, help);
    for (consumer, depth) in &in_store.parked {
        parked.sample(&[("consumer", consumer), ("waits_for", "itself")], depth.waiting);
        parked.sample(&[("consumer", consumer), ("waits_for", "person")], depth.dead);
    }
    let help = "Rows of the outbox, by state; 100000 stands for that many or more.";
    let mut outbox = text.family("oncebox_outbox_rows", Kind::Gauge, help);
    if let Some(rows) = in_store.outbox {
        outbox.sample(&[("state", "unsent")], rows.unsent);
        outbox.sample(&[("state", "refused")], rows.aside);
    }
    let help = "How long the oldest row that can be published has waited in the outbox; 0 if there is none.";
    let mut lag = text.family("oncebox_outbox_lag_seconds", Kind::Gauge, help);
    if let Some(seconds) = in_store.outbox_lag_seconds {
        lag.sample(&[], seconds);
    }
}

fn relay(text: &mut Text, overview: &Overview) {
    let seen = overview.relay().map(|stats| stats.snapshot());
    for (name, help, read) in RELAY_COUNTERS {
        let mut family = text.family(name, Kind::Counter, help);
        if let Some(stats) = &seen {
            family.sample(&[], read(stats));
        }
    }
    let mut lanes = text.family("oncebox_relay_lanes", Kind::Gauge, "Lanes of the outbox that this process holds.");
    if let Some(stats) = &seen {
        lanes.sample(&[], stats.lanes as u64);
    }
    let mut up = text.family("oncebox_relay_up", Kind::Gauge, "Whether the relay waits for nothing.");
    if let Some(stats) = &seen {
        up.sample(&[], stats.waiting_for.is_none());
    }
}

fn retention(text: &mut Text, overview: &Overview, now: Timestamp) {
    let stats = overview.retention();
    let seen = stats.map(|stats| stats.snapshot()).unwrap_or_default();
    let swept = stats.map(|stats| stats.swept());
    let help = "What was old and was removed, by what it is; what belongs to no consumer has no label for one.";
    let mut removed = text.family("oncebox_retention_removed_total", Kind::Counter, help);
    for (consumer, progress) in &seen {
        for (what, count) in [
            ("records", progress.deleted),
            ("processed", progress.processed),
            ("archive_blocks", progress.archive_blocks),
            ("journal", progress.journal),
        ] {
            removed.sample(&[("consumer", consumer), ("what", what)], count);
        }
    }
    if let Some(swept) = swept {
        removed.sample(&[("what", "sent")], swept.sent);
        removed.sample(&[("what", "replays")], swept.replays);
    }
    let help = "Passes over the records of a consumer that came to their end.";
    let mut passes = text.family("oncebox_retention_passes_total", Kind::Counter, help);
    for (consumer, progress) in &seen {
        passes.sample(&[("consumer", consumer)], progress.passes);
    }
    let help = "Steps of retention that failed and are tried again.";
    let mut failures = text.family("oncebox_retention_failures_total", Kind::Counter, help);
    for (consumer, progress) in &seen {
        failures.sample(&[("consumer", consumer)], progress.failures);
    }
    if let Some(swept) = swept {
        failures.sample(&[], swept.failures);
    }
    let help = "How far back a consumer can tell a duplicate, once something was removed.";
    let mut horizon = text.family("oncebox_retention_horizon_seconds", Kind::Gauge, help);
    for (consumer, progress) in &seen {
        if let Some(at) = progress.horizon {
            let back = u64::try_from(now.duration_since(at).as_secs()).unwrap_or(0);
            horizon.sample(&[("consumer", consumer)], back);
        }
    }
    let help = "The share of the time in which retention works, from 0 to 1; it rises where it falls behind.";
    let mut share = text.family("oncebox_retention_share", Kind::Gauge, help);
    if let Some(stats) = stats {
        share.sample(&[], f64::from(stats.share()) / 100.0);
    }
}
