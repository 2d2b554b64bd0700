create table oncebox_queues (
    id integer primary key,
    name text not null unique,
    lanes integer,
    -- Where the epochs of new lanes begin: after a change of lanes they go on, so that nobody from before holds one.
    epoch integer not null default 0
) strict;

-- Times are microseconds since 1970. Text that came with a message is kept as bytes: it may hold anything, a zero byte
-- included, and must come back as it came. `visible_at` is null once a row is processed. Ids are never used again:
-- a receipt of a row that is gone must not fit a new one.
create table oncebox_queue (
    id integer primary key autoincrement,
    queue integer not null,
    visible_at integer,
    made_at integer not null,
    made_at_nanos integer not null,
    received_at integer not null,
    processed_at integer,
    version integer,
    lane integer,
    order_hash integer,
    order_key blob,
    deliveries integer not null default 0,
    key blob,
    fingerprint integer,
    scheme integer,
    message_id blob,
    source blob,
    kind blob not null,
    headers blob,
    payload blob not null,
    error text
) strict;
-- "Add it only once": the key of a message that was received is unique in its queue for as long as its row stays.
create unique index oncebox_queue_once on oncebox_queue (queue, key) where key is not null;
-- Leasing without order.
create index oncebox_queue_visible on oncebox_queue (queue, visible_at, id) where visible_at is not null;
-- Leasing by lanes, oldest first.
create index oncebox_queue_ordered on oncebox_queue (queue, id) where lane is not null and visible_at is not null;
-- Whether a row of the same order key is invisible.
create index oncebox_queue_blocking on oncebox_queue (queue, order_hash, visible_at)
    where lane is not null and visible_at is not null;

create table oncebox_lanes (
    queue integer not null,
    lane integer not null,
    owner blob,
    epoch integer not null default 0,
    expires_at integer not null default 0,
    primary key (queue, lane)
) strict, without rowid;

create table oncebox_members (
    queue integer not null,
    owner blob not null,
    expires_at integer not null,
    primary key (queue, owner)
) strict, without rowid;
