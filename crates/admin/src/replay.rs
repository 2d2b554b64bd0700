//! Replays as operators start, watch and steer them. A [driver](crate::Admin::drive) carries them on.

use oncebox_core::Timestamp;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::{Base, OnTheirWay, Replay, ReplayId, ReplaySpec, ReplayState, Replays};
use serde::Serialize;
use serde_json::json;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, note_deed};
use crate::error::Error;
use crate::filter::Filter;
use crate::meant::Meant;
use crate::view::time;

/// How to replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// This many go first, and the others only if none of them failed; 0: all go together.
    pub canary: u32,
    /// At most this many a second; `None`: as fast as the store goes.
    pub rate: Option<u32>,
    /// At most this many on their way at once: when what is downstream slows, the replay slows with it.
    pub in_flight_max: u32,
    /// Stop when more than this many of a thousand failed; 1000: never.
    pub stop_permille: u16,
    /// Revive also what is older than the horizon, or has an effect that may have happened.
    pub force: bool,
}

impl Default for ReplayOptions {
    /// A canary of ten, a hundred a second, a thousand on their way, stop when a tenth failed, no force.
    fn default() -> Self {
        Self { canary: 10, rate: Some(100), in_flight_max: 1000, stop_permille: 100, force: false }
    }
}

impl ReplayOptions {
    fn check(&self) -> Result<(), Error> {
        let refuse = |option, problem| Err(Error::ReplayOption { option, problem });
        if self.rate == Some(0) {
            return refuse("a rate of 0", "it would never end; pause it instead");
        }
        if self.in_flight_max == 0 {
            return refuse("nothing in flight", "it would never begin");
        }
        if self.stop_permille > 1000 {
            return refuse("a stop ratio above one", "no more than all of them can fail");
        }
        Ok(())
    }
}

/// A replay and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReplayView {
    /// Its number.
    #[serde(serialize_with = "number")]
    pub id: ReplayId,
    /// Of whose messages.
    pub consumer: String,
    /// Which messages.
    pub filter: String,
    /// Whether it runs.
    #[serde(serialize_with = "name")]
    pub state: ReplayState,
    /// Why it stopped, if it did so by itself.
    pub stop_reason: Option<String>,
    /// Revived so far.
    pub revived: u64,
    /// Of those: run to their end, or found done.
    pub done: u64,
    /// Of those: dead again.
    pub failed: u64,
    /// Of those: due, in hand, or waiting for another attempt.
    pub live: u64,
    /// Of those: waiting behind a dead message of their order key.
    pub waiting: u64,
    /// Of those: discarded, edited or replayed by somebody else before they were done.
    pub withdrawn: u64,
    /// Refused; the plan says why.
    pub refused: u64,
    /// Left where they were, behind a dead message of their order key.
    pub held_up: u64,
    /// Not dead when they were looked at.
    pub moving: u64,
    /// The canary came through, or there is none.
    pub canary_passed: bool,
    /// Until when a driver holds it.
    #[serde(serialize_with = "crate::view::maybe_time")]
    pub held_until: Option<Timestamp>,
    /// Who started it.
    pub who: String,
    /// Why.
    pub why: String,
    /// When it was created.
    #[serde(serialize_with = "time")]
    pub created_at: Timestamp,
    /// When it was stored last.
    #[serde(serialize_with = "time")]
    pub changed_at: Timestamp,
}

fn number<Z: serde::Serializer>(id: &ReplayId, serializer: Z) -> Result<Z::Ok, Z::Error> {
    serializer.serialize_i64(id.0)
}

fn name<Z: serde::Serializer>(state: &ReplayState, serializer: Z) -> Result<Z::Ok, Z::Error> {
    serializer.serialize_str(state.name())
}

/// How many of the revived are done: those that are nowhere else.
pub(crate) fn done(replay: &Replay, way: OnTheirWay) -> u64 {
    let elsewhere = way.live + way.held_up + way.failed + replay.counts.withdrawn;
    replay.counts.revived.saturating_sub(elsewhere)
}

fn view(replay: Replay, way: OnTheirWay, consumer: String) -> ReplayView {
    ReplayView {
        done: done(&replay, way),
        id: replay.id,
        consumer,
        filter: replay.spec.filter,
        state: replay.state,
        stop_reason: replay.stop_reason,
        revived: replay.counts.revived,
        failed: way.failed,
        live: way.live,
        waiting: way.held_up,
        withdrawn: replay.counts.withdrawn,
        refused: replay.counts.refused,
        held_up: replay.counts.held_up,
        moving: replay.counts.moving,
        canary_passed: replay.canary_passed,
        held_until: replay.held_until,
        who: replay.spec.who,
        why: replay.spec.why,
        created_at: replay.created_at,
        changed_at: replay.changed_at,
    }
}

impl<S: QuarantineStore> Admin<S> {
    /// Starts a replay. It is planned first: if no message would run, it is refused with the reason, and nothing is
    /// stored. What it does, [a driver](Self::drive) does, here or in any other process.
    pub async fn start_replay(
        &self,
        meant: &Meant,
        options: &ReplayOptions,
        actor: &Actor,
    ) -> Result<ReplayView, Error> {
        options.check()?;
        let plan = self.plan(meant, options.force).await?;
        if plan.will_run() == 0 {
            let nothing = || "there is nothing to replay".to_owned();
            let sentence = plan.first_refusal.unwrap_or_else(nothing);
            return Err(Error::NothingToReplay { messages: meant.messages, sentence });
        }
        let spec = ReplaySpec {
            consumer: meant.consumer.id,
            filter: meant.filter.to_string(),
            as_of: meant.as_of,
            until: meant.until,
            canary: options.canary,
            rate: options.rate,
            in_flight_max: options.in_flight_max,
            stop_permille: options.stop_permille,
            force: options.force,
            who: actor.who().to_owned(),
            why: actor.why().to_owned(),
        };
        let mut tx = self.begin().await?;
        let id = tx.create_replay(&spec).await?;
        let detail = json!({
            "filter": spec.filter, "canary": spec.canary, "rate": spec.rate, "stop_permille": spec.stop_permille,
            "force": spec.force, "plan": plan.forecasts,
        });
        let (consumer, messages) = (Some(spec.consumer), meant.messages);
        let deed = Deed { verb: "replay.start", consumer, replay: Some(id), messages, detail: &detail };
        note_deed(&mut tx, actor, deed).await?;
        self.commit(tx).await?;
        self.show_replay(id).await
    }

    /// A replay and how far it is.
    pub async fn show_replay(&self, id: ReplayId) -> Result<ReplayView, Error> {
        let mut tx = self.begin().await?;
        let replay = tx.replay(id).await?.ok_or(Error::NoReplay(id))?;
        let way = tx.on_their_way(replay.spec.consumer, id).await?;
        self.end(tx).await;
        self.named(vec![(replay, way)]).await?.pop().ok_or(Error::NoReplay(id))
    }

    /// How many messages a replay will have revived at its end, as far as can be told now: those that it has, and those that
    /// it has not looked at yet and would. Reads all that are parked, page by page.
    pub async fn replay_length(&self, id: ReplayId) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let replay = tx.replay(id).await?.ok_or(Error::NoReplay(id))?;
        self.end(tx).await;
        let revived = replay.counts.revived;
        let consumer = self.consumers().await?.into_iter().find(|known| known.id == replay.spec.consumer);
        let Some(consumer) = consumer.filter(|_| !replay.state.is_final()) else { return Ok(revived) };
        let (filter, as_of, until) = (Filter::parse(&replay.spec.filter)?, replay.spec.as_of, replay.spec.until);
        let meant = Meant { messages: 0, dead: 0, consumer, filter, as_of, until };
        let mut to_come = 0;
        self.plan_each(&meant, replay.spec.force, |planned| {
            to_come += u64::from(planned.row > replay.cursor && planned.forecast.runs());
        })
        .await?;
        Ok(revived + to_come)
    }

    /// The newest replays, of one consumer or of all.
    pub async fn list_replays(&self, consumer: Option<&str>, limit: usize) -> Result<Vec<ReplayView>, Error> {
        let consumer = match consumer {
            Some(name) => Some(self.consumer(name).await?.id),
            None => None,
        };
        let mut tx = self.begin().await?;
        let mut found = Vec::new();
        for replay in tx.replays(consumer, limit).await? {
            let way = tx.on_their_way(replay.spec.consumer, replay.id).await?;
            found.push((replay, way));
        }
        self.end(tx).await;
        self.named(found).await
    }

    /// Pauses a replay. What is on its way goes on; nothing more is revived.
    pub async fn pause_replay(&self, id: ReplayId, actor: &Actor) -> Result<ReplayView, Error> {
        self.steer(id, actor, ("pause", "replay.pause"), |replay, _| match replay.state {
            ReplayState::Running => Some(ReplayState::Paused),
            _ => None,
        })
        .await
    }

    /// Resumes a replay that was paused, or that stopped by itself. One that stopped begins with a canary again, and
    /// counts failures from here on.
    pub async fn resume_replay(&self, id: ReplayId, actor: &Actor) -> Result<ReplayView, Error> {
        self.steer(id, actor, ("resume", "replay.resume"), |replay, way| match replay.state {
            ReplayState::Paused => Some(ReplayState::Running),
            ReplayState::Stopped => {
                let done = done(replay, way);
                replay.base = Base { revived: replay.counts.revived, done, failed: way.failed };
                replay.canary_passed = replay.spec.canary == 0;
                replay.stop_reason = None;
                Some(ReplayState::Running)
            }
            _ => None,
        })
        .await
    }

    /// Ends a replay for good. What is on its way goes on; nothing more is revived.
    pub async fn cancel_replay(&self, id: ReplayId, actor: &Actor) -> Result<ReplayView, Error> {
        self.steer(id, actor, ("cancel", "replay.cancel"), |replay, _| {
            (!replay.state.is_final()).then_some(ReplayState::Cancelled)
        })
        .await
    }

    /// Changes the state of a replay, if it is one that can be changed so.
    async fn steer(
        &self,
        id: ReplayId,
        actor: &Actor,
        (word, verb): (&'static str, &'static str),
        change: impl FnOnce(&mut Replay, OnTheirWay) -> Option<ReplayState> + Send,
    ) -> Result<ReplayView, Error> {
        let mut tx = self.begin().await?;
        let mut replay = tx.replay(id).await?.ok_or(Error::NoReplay(id))?;
        let way = tx.on_their_way(replay.spec.consumer, id).await?;
        let before = replay.state;
        let Some(state) = change(&mut replay, way) else {
            self.end(tx).await;
            return Err(Error::ReplayState { verb: word, id, state: before });
        };
        replay.state = state;
        tx.save_replay(&replay).await?;
        let detail = json!({ "was": before.name(), "is": state.name() });
        let (consumer, messages) = (Some(replay.spec.consumer), replay.counts.revived);
        note_deed(&mut tx, actor, Deed { verb, consumer, replay: Some(id), messages, detail: &detail }).await?;
        self.commit(tx).await?;
        self.show_replay(id).await
    }

    pub(crate) async fn named(&self, found: Vec<(Replay, OnTheirWay)>) -> Result<Vec<ReplayView>, Error> {
        let consumers = self.consumers().await?;
        let name = |replay: &Replay| {
            let known = consumers.iter().find(|known| known.id == replay.spec.consumer);
            known.map_or_else(|| "?".to_owned(), |known| known.name.as_str().to_owned())
        };
        Ok(found.into_iter().map(|(replay, way)| (name(&replay), replay, way)).map(|(n, r, w)| view(r, w, n)).collect())
    }
}
