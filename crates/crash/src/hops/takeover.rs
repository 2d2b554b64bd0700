//! How long the lanes of a dead relay stood still.

use std::collections::HashMap;
use std::time::Duration;

use super::tables;
use crate::place::{Eye, Place};

/// A relay that was killed, and the lanes that it held then. The time is the store's, in microseconds.
#[derive(Clone, Debug)]
pub(super) struct RelayKill {
    pub(super) at: i64,
    pub(super) lanes: Vec<i64>,
}

/// A row that left the outbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) lane: i64,
    pub(super) emitted_at: i64,
    pub(super) ended_at: i64,
}

pub(super) async fn read(place: &Place, eye: &mut Eye) -> anyhow::Result<Vec<Ended>> {
    let ended = tables::ended(place);
    let sql = format!("select lane::int8, emitted_at, ended_at from {ended} order by ended_at");
    let rows = eye.numbers(sql).await?;
    Ok(rows.iter().map(|row| Ended { lane: row[0], emitted_at: row[1], ended_at: row[2] }).collect())
}

/// For each kill and each lane: from the kill, or from the moment when there was something to publish in the lane if that
/// was later, until a row of it was published and ended. A lane whose next owner was killed too before it moved is timed
/// from that kill.
pub(super) fn waits(kills: &[RelayKill], ended: &[Ended]) -> Vec<Duration> {
    let mut by_lane: HashMap<i64, Vec<Ended>> = HashMap::new();
    for row in ended {
        by_lane.entry(row.lane).or_default().push(*row);
    }
    let mut waits = Vec::new();
    for (place, kill) in kills.iter().enumerate() {
        for lane in &kill.lanes {
            let rows = by_lane.get(lane).map(Vec::as_slice).unwrap_or_default();
            // One that was ended at this very moment was ended by the dead relay.
            let Some(next) = rows.iter().find(|row| row.ended_at > kill.at + SETTLING) else { continue };
            let killed_again =
                kills[place + 1..].iter().any(|later| later.at < next.ended_at && later.lanes.contains(lane));
            if !killed_again {
                let from = kill.at.max(next.emitted_at);
                waits.push(Duration::from_micros(u64::try_from(next.ended_at - from).unwrap_or(0)));
            }
        }
    }
    waits
}

/// Between looking at the lanes of a relay and its death, in microseconds.
const SETTLING: i64 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(rows: &[(i64, i64, i64)]) -> Vec<Ended> {
        rows.iter().map(|&(lane, emitted_at, ended_at)| Ended { lane, emitted_at, ended_at }).collect()
    }

    #[test]
    fn a_lane_is_timed_from_the_last_death_of_its_owners() {
        let kill = |at, lanes: &[i64]| RelayKill { at, lanes: lanes.to_vec() };
        let rows = ended(&[(1, 0, 1_020_000), (1, 0, 3_000_000), (2, 2_500_000, 2_600_000), (3, 0, 4_000_000)]);
        let kills = [kill(1_000_000, &[1, 2, 3]), kill(2_000_000, &[3]), kill(9_000_000, &[1])];
        let waits: Vec<u128> = waits(&kills, &rows).iter().map(Duration::as_millis).collect();
        assert_eq!(waits, [2_000, 100, 2_000]);
    }
}
