//! Ways to do the same work.

/// A way to do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// The business update alone, in batches, with no dedup at all.
    Bare,
    /// By hand: one transaction per message, insert or skip, update.
    Naive(u16),
    /// By hand: claim and update of a hundred at a time.
    HandBatched,
    /// Ours, one message per call.
    Each,
    /// Ours, set-based.
    Batch,
    /// The same two with a journal of every delivery.
    EachJournaled,
    BatchJournaled,
    /// By hand, one transaction per message, on hot rows.
    HotNaive(u16),
    /// Ours, one message per call, on hot rows.
    HotEach(u16),
}

impl Variant {
    /// All of them, with these numbers of connections; hot rows of ours on so many lanes.
    pub(super) fn all(connections: &[u16], hot_lanes: u16) -> Vec<Self> {
        let naive = connections.iter().map(|n| Self::Naive(*n));
        let hot = connections.iter().map(|n| Self::HotNaive(*n));
        let mut all = vec![Self::Bare];
        all.extend(
            naive.chain([Self::HandBatched, Self::Each, Self::Batch]).chain(hot).chain([Self::HotEach(hot_lanes)]),
        );
        all
    }

    /// Ours with a journal, beside ours without.
    pub(super) fn journaled() -> [Self; 2] {
        [Self::EachJournaled, Self::BatchJournaled]
    }

    pub(super) fn name(self) -> String {
        let plural = |n: u16| if n == 1 { "" } else { "s" };
        match self {
            Self::Bare => "bare update, batched, no dedup".to_owned(),
            Self::Naive(n) => format!("hand-written inbox, {n} connection{}", plural(n)),
            Self::HandBatched => "hand-written inbox, batched".to_owned(),
            Self::Each => "oncebox `on`".to_owned(),
            Self::Batch => "oncebox `on_batch`".to_owned(),
            Self::EachJournaled => "oncebox `on`, with a journal".to_owned(),
            Self::BatchJournaled => "oncebox `on_batch`, with a journal".to_owned(),
            Self::HotNaive(n) => format!("hot rows: hand-written, {n} connection{}", plural(n)),
            Self::HotEach(n) => format!("hot rows: oncebox `on`, {n} lanes"),
        }
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Each | Self::Batch | Self::EachJournaled | Self::BatchJournaled | Self::HotEach(_))
    }

    /// How many messages of `messages` a run of it takes: one commit per message would make it ten times as long.
    pub(super) fn share(self, messages: u32) -> u32 {
        match self {
            Self::Bare | Self::HandBatched | Self::Each | Self::Batch | Self::EachJournaled | Self::BatchJournaled => {
                messages
            }
            Self::Naive(_) | Self::HotNaive(_) | Self::HotEach(_) => messages.div_ceil(10),
        }
    }
}
