-- Messages to publish, written in the transaction that decided them. `state`: 0 unsent, 1 waits behind a row that is set
-- aside, 2 set aside because the broker refused it, 3 sent and kept. Times are microseconds since 1970. Text that came
-- with the message is kept as bytes, as in the queue. Numbers are never used again: a receipt of a row that is gone must
-- not fit a new one.
create table oncebox_outbox (
    seq integer primary key autoincrement,
    state integer not null default 0,
    lane integer not null,
    topic_hash integer not null,
    -- Over topic and order key; null without an order key.
    order_hash integer,
    emitted_at integer not null,
    -- When it was set aside or sent.
    settled_at integer,
    -- Stands for the message's id, which may be too long for an index.
    key blob not null,
    topic blob not null,
    order_key blob,
    message_id blob not null,
    source blob,
    kind blob not null,
    version integer,
    headers blob,
    payload blob not null,
    made_at integer not null,
    made_at_nanos integer not null,
    reason text
) strict;
-- Two messages that are not sent yet have two ids.
create unique index oncebox_outbox_once on oncebox_outbox (key) where state <> 3;
-- What a relay fetches, oldest first: most often one process holds all lanes. With lane and topic, so that others are
-- passed over without a look at the table.
create index oncebox_outbox_unsent on oncebox_outbox (seq, lane, topic_hash) where state = 0;
-- Whether a row of the same topic and order key is set aside or waits. The hash stands in for keys that are too long for
-- an index.
create index oncebox_outbox_blocking on oncebox_outbox (order_hash, seq) where state in (1, 2);
-- Leafing through what is set aside, and counting.
create index oncebox_outbox_held_back on oncebox_outbox (state, seq) where state in (1, 2);
