//! What the processes of a row write, and what is watched: business tables without a constraint, in which an effect that
//! happens twice is there twice, and on PostgreSQL a note of who ended which row of the outbox.

use oncebox::queue::QueueSpec;
use serde::{Deserialize, Serialize};

use crate::feed::Order;
use crate::place::{Eye, Place};

/// Order keys of a writer: enough to meet most lanes.
pub(super) const KEYS: u64 = 256;

/// What goes over topic 2.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Forwarded {
    pub(super) order: Order,
    /// Of the one attempt that emitted this.
    pub(super) token: i64,
}

/// The business table behind topic 1, or of the writer.
pub(super) fn first(place: &Place) -> String {
    place.table("hop_first")
}

/// The business table behind topic 2.
pub(super) fn second(place: &Place) -> String {
    place.table("hop_second")
}

/// Counts the messages of each key, for the writer.
pub(super) fn totals(place: &Place) -> String {
    place.table("hop_totals")
}

/// Who ended which row of the outbox, and whose its lane was at that moment.
pub(super) fn ended(place: &Place) -> String {
    place.table("hop_ended")
}

/// The statement that writes an effect.
pub(super) fn insert(table: &str, order: &Order, token: i64) -> String {
    let Order { n, key, seq, .. } = order;
    format!("insert into {table} (n, key, seq, token) values ({n}, {key}, {seq}, {token})")
}

pub(super) async fn set_up(place: &Place) -> anyhow::Result<()> {
    place.set_up().await?;
    let serial = match place {
        Place::Sqlite { .. } => "integer primary key",
        Place::Postgres { .. } => "bigserial",
    };
    let columns = "n bigint not null, key bigint not null, seq bigint not null, token bigint not null";
    let mut eye = place.eye().await?;
    for table in [first(place), second(place)] {
        eye.execute(format!("create table {table} (at {serial}, {columns})")).await?;
    }
    let totals = totals(place);
    eye.execute(format!("create table {totals} (key bigint primary key, total bigint not null)")).await?;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("({key}, 0)")).collect();
    eye.execute(format!("insert into {totals} values {}", keys.join(", "))).await?;
    if let Place::Postgres { .. } = place {
        note_ends(place, &mut eye).await?;
    }
    Ok(())
}

/// Relays say who they are by a setting of their session; see [`as_relay`].
async fn note_ends(place: &Place, eye: &mut Eye) -> anyhow::Result<()> {
    let (ended, note) = (ended(place), place.table("hop_note"));
    let (lanes, queues, outbox) = (place.table("lanes"), place.table("queues"), place.table("outbox"));
    let columns =
        "lane int4 not null, owner int8, relay int8 not null, emitted_at int8 not null, ended_at int8 not null";
    eye.execute(format!("create table {ended} (at bigserial, {columns})")).await?;
    let name = QueueSpec::outbox().name;
    let body = format!(
        "begin
            insert into {ended} (lane, owner, relay, emitted_at, ended_at)
            select old.lane, ('x' || right(encode(lanes.owner, 'hex'), 15))::bit(60)::int8,
                coalesce(nullif(current_setting('crash.relay', true), ''), '-1')::int8, old.emitted_at,
                (extract(epoch from clock_timestamp()) * 1000000)::int8
            from {lanes} lanes join {queues} queues on queues.id = lanes.queue
            where queues.name = '{name}' and lanes.lane = old.lane;
            return old;
        end"
    );
    eye.execute(format!("create function {note}() returns trigger language plpgsql as $$ {body} $$")).await?;
    eye.execute(format!("create trigger hop_note before delete on {outbox} for each row execute function {note}()"))
        .await?;
    Ok(())
}

/// The store as relay `number` reaches it.
pub(super) fn as_relay(place: &Place, number: u64) -> Place {
    match place {
        Place::Sqlite { .. } => place.clone(),
        Place::Postgres { url, schema } => {
            let mark = if url.contains('?') { '&' } else { '?' };
            Place::Postgres { url: format!("{url}{mark}options[crash.relay]={number}"), schema: schema.clone() }
        }
    }
}

/// The lanes that relay `number` holds, and the time by the server's clock, in microseconds.
pub(super) async fn lanes_of(place: &Place, eye: &mut Eye, number: u64) -> anyhow::Result<(i64, Vec<i64>)> {
    let (lanes, queues) = (place.table("lanes"), place.table("queues"));
    let now = eye.number("select (extract(epoch from clock_timestamp()) * 1000000)::int8".to_owned()).await?;
    let own = format!("owner = decode('{:032x}', 'hex')", owner(number));
    let name = QueueSpec::outbox().name;
    let queue = format!("queue = (select id from {queues} where name = '{name}')");
    let rows = eye.numbers(format!("select lane::int8 from {lanes} where {queue} and {own}")).await?;
    Ok((now, rows.into_iter().flatten().collect()))
}

/// Under which number a relay holds lanes: its own, and not zero.
pub(super) fn owner(number: u64) -> u128 {
    u128::from(number) + 1
}

/// What the tables hold at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) first: u64,
    pub(super) second: u64,
    pub(super) outbox: u64,
    /// Messages that are set aside and tried again.
    pub(super) parked: u64,
}

/// Looks at the tables, over a connection that may have to be opened again.
pub(super) struct Watch {
    pub(super) place: Place,
    pub(super) eye: Option<Eye>,
}

impl Watch {
    /// `None` while the store can't be looked at.
    pub(super) async fn look(&mut self) -> Option<State> {
        if self.eye.is_none() {
            self.eye = self.place.eye().await.ok();
        }
        let (first, second) = (first(&self.place), second(&self.place));
        let (outbox, parked) = (self.place.table("outbox"), self.place.table("parked"));
        let sql = format!(
            "select (select count(*) from {first}), (select count(*) from {second}), (select count(*) from {outbox}),
                (select count(*) from {parked} where due_at is not null)"
        );
        match self.eye.as_mut()?.numbers(sql).await {
            Ok(rows) => {
                let row = rows.first()?;
                let at = |place: usize| row.get(place).copied().unwrap_or(0) as u64;
                Some(State { first: at(0), second: at(1), outbox: at(2), parked: at(3) })
            }
            Err(_) => {
                self.eye = None;
                None
            }
        }
    }
}
