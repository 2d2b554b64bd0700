-- Messages that are set aside: waiting for a retry (state 0), for their turn behind another (1), for a gap to close
-- (2), or for a person (3). Times are microseconds since 1970 by the server's clock; `due_at` is null while a row is
-- dead. `class` is that of the failure: 0 transient, 1 permanent, 2 unknown, 3 rejected, null for none. Text that came
-- with the message is kept as bytes, as in the queue. `order_key` is the one that later messages wait behind;
-- `message_order_key` is the message's own.
create table {schema}.parked (
    id int8 generated always as identity primary key,
    due_at int8,
    first_at int8 not null,
    last_at int8 not null,
    made_at int8 not null,
    fingerprint int8 not null,
    order_hash int8,
    version int8,
    -- For operators: the operation that plays it again, and the row that this one is an edited copy of.
    replay int8,
    supersedes int8,
    fence int4 not null default 0,
    attempts int4 not null,
    consumer int2 not null,
    state int2 not null,
    -- 1: a lease found it behind an earlier row of its order key, and none looks at it again before that one is gone.
    behind int2 not null default 0,
    class int2,
    owns_record int2 not null,
    scheme int2 not null,
    made_at_nanos int2 not null,
    key bytea not null,
    order_key bytea,
    message_order_key bytea,
    message_id bytea,
    source bytea,
    kind bytea not null,
    headers bytea,
    payload bytea not null,
    cause text collate "C" not null,
    reason text not null,
    note text
) with (
    -- Each lease and each verdict writes a new version of the row, close to the old one where there is room.
    fillfactor = 80,
    -- Dead rows are what makes such a table slow: vacuum by count, whatever its size, and at full speed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);
-- One content under one key is parked once; another content under the same key is parked beside it.
create unique index parked_once on {schema}.parked (consumer, key, fingerprint, scheme);
-- Leasing, the longest due first.
create index parked_due on {schema}.parked (consumer, due_at, id) where due_at is not null and behind = 0;
-- Whether an order key is blocked. The hash stands in for keys that are too long for an index.
create index parked_blocking on {schema}.parked (consumer, order_hash, id) where order_hash is not null and state <> 2;
-- Leafing through.
create index parked_paging on {schema}.parked (consumer, id);

-- Attempts that were begun by a process and not finished: what kills its process is found here.
create table {schema}.starts (
    at int8 not null,
    starts int4 not null,
    consumer int2 not null,
    waits boolean not null,
    key bytea not null,
    primary key (consumer, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
