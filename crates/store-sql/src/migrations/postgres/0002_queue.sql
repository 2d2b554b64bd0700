create table {schema}.queues (
    id int2 primary key,
    name text collate "C" not null unique,
    lanes int4,
    -- Where the epochs of new lanes begin: after a change of lanes they go on, so that nobody from before holds one.
    epoch int8 not null default 0
);

-- Times are microseconds since 1970 by the server's clock. Text that came with a message is kept as bytes: it may hold
-- anything, a zero byte included, and must come back as it came. `visible_at` is null once a row is processed.
create table {schema}.queue (
    id int8 generated always as identity primary key,
    visible_at int8,
    made_at int8 not null,
    received_at int8 not null,
    processed_at int8,
    version int8,
    fingerprint int8,
    order_hash int8,
    lane int4,
    deliveries int4 not null default 0,
    queue int2 not null,
    scheme int2,
    made_at_nanos int2 not null,
    key bytea,
    message_id bytea,
    source bytea,
    kind bytea not null,
    order_key bytea,
    headers bytea,
    payload bytea not null,
    error text
) with (
    -- Each lease and each release writes a new version of the row, close to the old one where there is room.
    fillfactor = 80,
    -- Dead rows are what makes a queue table slow: vacuum by count, whatever the size of the table, and at full speed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);
-- "Add it only once": the key of a message that was received is unique in its queue for as long as its row stays.
create unique index queue_once on {schema}.queue (queue, key) where key is not null;
-- Leasing without order.
create index queue_visible on {schema}.queue (queue, visible_at, id) where visible_at is not null;
-- Leasing by lanes, oldest first.
create index queue_ordered on {schema}.queue (queue, id) where lane is not null and visible_at is not null;
-- Whether a row of the same order key is invisible. The hash stands in for keys that are too long for an index.
create index queue_blocking on {schema}.queue (queue, order_hash, visible_at)
    where lane is not null and visible_at is not null;

create table {schema}.lanes (
    queue int2 not null,
    lane int4 not null,
    owner bytea,
    epoch int8 not null default 0,
    expires_at int8 not null default 0,
    primary key (queue, lane)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table {schema}.members (
    queue int2 not null,
    owner bytea not null,
    expires_at int8 not null,
    primary key (queue, owner)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
