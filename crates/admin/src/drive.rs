//! The driver of a replay.
//!
//! ```text
//!  take hold ──▶ step ──▶ step ──▶ … ──▶ let go      each step is one transaction: keep hold, look where the revived
//!      ▲          │                                  are, perhaps stop, revive some more, store how far it is
//!      └─ fenced ─┘
//! ```
//!
//! A driver keeps nothing that matters in memory. Killed anywhere, it leaves a replay that the next one carries on from
//! its last committed step, once the hold has run out.

use std::time::Duration;

use oncebox_core::StoreErrorKind;
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::replay::{Hold, OnTheirWay, Replay, ReplayId, ReplayState, Replays};
use serde_json::json;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, PAGE, note_deed};
use crate::error::Error;
use crate::filter::{Filter, Subject};
use crate::forecast::Forecast;
use crate::pace::Pace;
use crate::replay::{ReplayView, done};

/// A ratio means nothing before this many messages have come to an end.
const SAMPLE_MIN: u64 = 10;

/// How often in a row the store may be away before a driver gives up.
const TRIES_MAX: u32 = 10;

/// How a driver works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveOptions {
    /// How long a driver that does not stir keeps others away.
    pub lease: Duration,
    /// How often it looks where the messages are.
    pub poll: Duration,
    /// How many messages it revives in one transaction, at most.
    pub batch: usize,
}

impl Default for DriveOptions {
    /// Half a minute, a quarter of a second, a hundred.
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), poll: Duration::from_millis(250), batch: 100 }
    }
}

/// What a step leads to.
enum Next {
    /// Another step, after this long.
    Step(Duration),
    /// The replay does not run any more.
    End,
}

impl<S: QuarantineStore> Admin<S> {
    /// Carries a replay on until it is done, stops, or is paused or cancelled. While another driver has it, this one
    /// waits, and takes over when that one does not stir any more. Safe to drop at any point.
    pub async fn drive(&self, id: ReplayId, actor: &Actor, options: &DriveOptions) -> Result<ReplayView, Error> {
        let mut pace: Option<Pace> = None;
        let mut fence: Option<i32> = None;
        let mut tries = 0;
        loop {
            let next = match fence {
                None => self.take_hold(id, &mut fence, options).await,
                Some(fence) => self.step(id, fence, actor, options, &mut pace).await,
            };
            let wait = match next {
                Ok(Next::End) => return self.show_replay(id).await,
                Ok(Next::Step(wait)) => {
                    tries = 0;
                    wait
                }
                Err(Error::Store(error)) if error.kind() == StoreErrorKind::Fenced => {
                    tracing::info!(replay = id.0, "another driver has taken over");
                    fence = None;
                    options.poll
                }
                Err(error) if error.is_retryable() && tries < TRIES_MAX => {
                    tries += 1;
                    tracing::warn!(code = %error.code(), replay = id.0, %error, tries, "a step failed; it is tried again");
                    options.poll * tries
                }
                Err(error) => return Err(error),
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn take_hold(&self, id: ReplayId, fence: &mut Option<i32>, options: &DriveOptions) -> Result<Next, Error> {
        let mut tx = self.begin().await?;
        match tx.hold_replay(id, None, options.lease).await? {
            Hold::Absent => Err(Error::NoReplay(id)),
            Hold::Busy(_) => {
                let state = tx.replay(id).await?.map(|replay| replay.state);
                self.end(tx).await;
                Ok(if state == Some(ReplayState::Running) { Next::Step(options.poll) } else { Next::End })
            }
            Hold::Held(replay) if replay.state != ReplayState::Running => {
                self.end(tx).await;
                Ok(Next::End)
            }
            Hold::Held(replay) => {
                self.commit(tx).await?;
                *fence = Some(replay.fence);
                Ok(Next::Step(Duration::ZERO))
            }
        }
    }

    async fn step(
        &self,
        id: ReplayId,
        fence: i32,
        actor: &Actor,
        options: &DriveOptions,
        pace: &mut Option<Pace>,
    ) -> Result<Next, Error> {
        let mut tx = self.begin().await?;
        let Hold::Held(mut replay) = tx.hold_replay(id, Some(fence), options.lease).await? else {
            return Err(Error::NoReplay(id));
        };
        let mut revived = 0;
        let pace = pace.get_or_insert_with(|| Pace::new(replay.spec.rate));
        // One that ended before was noted then; here only the answer was lost.
        let was_running = replay.state == ReplayState::Running;
        let next = if was_running {
            let way = tx.on_their_way(replay.spec.consumer, id).await?;
            match decide(&mut replay, way) {
                Decision::End => Next::End,
                Decision::Wait => Next::Step(options.poll),
                Decision::Revive(max) => {
                    let max = pace.allowed(max.min(options.batch));
                    if max > 0 {
                        revived = self.revive(&mut tx, &mut replay, max).await?;
                        Next::Step(Duration::ZERO)
                    } else {
                        Next::Step(pace.wait().min(options.poll))
                    }
                }
            }
        } else {
            Next::End
        };
        if matches!(next, Next::End) {
            if was_running && matches!(replay.state, ReplayState::Done | ReplayState::Stopped) {
                note_end(&mut tx, &replay, actor).await?;
            }
            tx.let_go_replay(id, fence).await?;
        }
        tx.save_replay(&replay).await?;
        self.commit(tx).await?;
        pace.spend(revived);
        Ok(next)
    }

    /// Looks at the next messages and revives up to `max` of those that are meant and would run.
    async fn revive(&self, tx: &mut S::Tx, replay: &mut Replay, max: usize) -> Result<usize, Error> {
        let spec = &replay.spec;
        let filter = Filter::parse(&spec.filter)?;
        let limits = Self::limits(tx, spec.consumer).await?;
        let mut judge = self.judge(limits, spec.force);
        let mut page = tx.page(spec.consumer, replay.cursor, PAGE).await?;
        if page.is_empty() {
            replay.cursor = spec.until;
        }
        let is_meant = |row: &ParkedRow| filter.matches(&Subject::new(row, spec.as_of));
        // Each of these may be looked up in the archive, which reads it: not more of them than can be revived.
        let is_looked_up = |row: &ParkedRow| limits.may_have_forgotten(row) && is_meant(row);
        let beyond = page.iter().enumerate().filter(|(_, row)| is_looked_up(row)).nth(max).map(|(place, _)| place);
        page.truncate(beyond.unwrap_or(page.len()));
        let said = Self::said(tx, spec.consumer, &page, limits, is_meant).await?;
        let mut chosen = Vec::new();
        for (row, said) in page.iter().zip(said) {
            if chosen.len() == max {
                break;
            }
            if row.row > spec.until {
                replay.cursor = spec.until;
                break;
            }
            replay.cursor = row.row;
            let is_meant = is_meant(row);
            let forecast = judge.next(row, is_meant, said);
            if !is_meant {
                continue;
            }
            match forecast {
                forecast if forecast.runs() => chosen.push(row.row),
                Forecast::HeldUp => replay.counts.held_up += 1,
                Forecast::Moving => replay.counts.moving += 1,
                _ => replay.counts.refused += 1,
            }
        }
        let revived = tx.revive(&chosen, Some(replay.id)).await?.into_iter().filter(|done| *done).count();
        // Somebody else has taken them between our look and our hand.
        replay.counts.moving += (chosen.len() - revived) as u64;
        replay.counts.revived += revived as u64;
        Ok(revived)
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It has come to an end, and its state says which.
    End,
    /// Nothing, until messages that are on their way have arrived.
    Wait,
    /// Revive up to this many.
    Revive(usize),
}

/// Decides what a running replay does, seeing where its messages are.
fn decide(replay: &mut Replay, way: OnTheirWay) -> Decision {
    let spec = &replay.spec;
    let done = done(replay, way).saturating_sub(replay.base.done);
    let failed = way.failed.saturating_sub(replay.base.failed);
    let ended = done + failed;
    let all_seen = replay.cursor >= spec.until;
    if !replay.canary_passed {
        let sent = replay.counts.revived.saturating_sub(replay.base.revived);
        let missing = u64::from(spec.canary).saturating_sub(sent);
        if failed > 0 {
            return stop(replay, format!("{failed} of its canary of {sent} failed"));
        }
        if missing > 0 && !all_seen {
            return Decision::Revive(usize::try_from(missing).unwrap_or(usize::MAX));
        }
        if way.live > 0 {
            return Decision::Wait;
        }
        replay.canary_passed = true;
    }
    let spec = &replay.spec;
    if ended >= SAMPLE_MIN && failed * 1000 > u64::from(spec.stop_permille) * ended {
        let reason = format!("{failed} of {ended} failed, and {} of 1000 are allowed", spec.stop_permille);
        return stop(replay, reason);
    }
    if all_seen {
        if way.live > 0 {
            return Decision::Wait;
        }
        replay.state = ReplayState::Done;
        return Decision::End;
    }
    match u64::from(spec.in_flight_max).saturating_sub(way.live) {
        0 => Decision::Wait,
        room => Decision::Revive(usize::try_from(room).unwrap_or(usize::MAX)),
    }
}

fn stop(replay: &mut Replay, reason: String) -> Decision {
    replay.state = ReplayState::Stopped;
    replay.stop_reason = Some(reason);
    Decision::End
}

async fn note_end(
    tx: &mut impl oncebox_core::audit::Audits,
    replay: &Replay,
    actor: &Actor,
) -> Result<(), oncebox_core::StoreError> {
    let verb = if replay.state == ReplayState::Done { "replay.done" } else { "replay.stop" };
    let detail = json!({ "reason": replay.stop_reason });
    let (consumer, replay_id, messages) = (Some(replay.spec.consumer), Some(replay.id), replay.counts.revived);
    note_deed(tx, actor, Deed { verb, consumer, replay: replay_id, messages, detail: &detail }).await.map(drop)
}
