-- Messages to publish, written in the transaction that decided them. `state`: 0 unsent, 1 waits behind a row that is set
-- aside, 2 set aside because the broker refused it, 3 sent and kept. Rows are found by their state, never by being greater
-- than the last one: a transaction that commits late has an old `seq`. Times are microseconds since 1970 by the server's
-- clock. Text that came with the message is kept as bytes, as in the queue.
create table {schema}.outbox (
    seq int8 generated always as identity primary key,
    emitted_at int8 not null,
    -- When it was set aside or sent.
    settled_at int8,
    made_at int8 not null,
    version int8,
    topic_hash int8 not null,
    -- Over topic and order key; null without an order key.
    order_hash int8,
    lane int4 not null,
    state int2 not null default 0,
    made_at_nanos int2 not null,
    -- Stands for the message's id, which may be too long for an index.
    key bytea not null,
    topic bytea not null,
    order_key bytea,
    message_id bytea not null,
    source bytea,
    kind bytea not null,
    headers bytea,
    payload bytea not null,
    reason text
) with (
    -- Rows come and go: vacuum by count, whatever the size of the table, and at full speed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);
-- Two messages that are not sent yet have two ids.
create unique index outbox_once on {schema}.outbox (key) where state <> 3;
-- What a relay fetches, lane by lane.
create index outbox_unsent on {schema}.outbox (lane, seq) where state = 0;
-- The same while a topic is left out: a million rows of it are passed over in one step.
create index outbox_by_topic on {schema}.outbox (lane, topic_hash, seq) where state = 0;
-- Whether a row of the same topic and order key is set aside or waits. The hash stands in for keys that are too long for
-- an index.
create index outbox_blocking on {schema}.outbox (order_hash, seq) where state in (1, 2);
-- Leafing through what is set aside, and counting.
create index outbox_held_back on {schema}.outbox (state, seq) where state in (1, 2);
