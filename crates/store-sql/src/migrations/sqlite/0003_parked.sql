-- Messages that are set aside: waiting for a retry (state 0), for their turn behind another (1), for a gap to close
-- (2), or for a person (3). Times are microseconds since 1970; `due_at` is null while a row is dead. `class` is that of
-- the failure: 0 transient, 1 permanent, 2 unknown, 3 rejected, null for none. Text that came with the message is kept
-- as bytes, as in the queue. `order_key` is the one that later messages wait behind; `message_order_key` is the
-- message's own. Ids are never used again: a receipt of a row that is gone must not fit a new one.
create table oncebox_parked (
    id integer primary key autoincrement,
    consumer integer not null,
    state integer not null,
    -- 1: a lease found it behind an earlier row of its order key, and none looks at it again before that one is gone.
    behind integer not null default 0,
    due_at integer,
    fence integer not null default 0,
    key blob not null,
    fingerprint integer not null,
    scheme integer not null,
    owns_record integer not null,
    class integer,
    cause text not null,
    reason text not null,
    attempts integer not null,
    order_hash integer,
    order_key blob,
    first_at integer not null,
    last_at integer not null,
    message_order_key blob,
    message_id blob,
    source blob,
    kind blob not null,
    version integer,
    headers blob,
    payload blob not null,
    made_at integer not null,
    made_at_nanos integer not null,
    -- For operators: a remark, the operation that plays it again, and the row that this one is an edited copy of.
    note text,
    replay integer,
    supersedes integer
) strict;
-- One content under one key is parked once; another content under the same key is parked beside it.
create unique index oncebox_parked_once on oncebox_parked (consumer, key, fingerprint, scheme);
-- Leasing, the longest due first.
create index oncebox_parked_due on oncebox_parked (consumer, due_at, id) where due_at is not null and behind = 0;
-- Whether an order key is blocked. The hash stands in for keys that are too long for an index.
create index oncebox_parked_blocking on oncebox_parked (consumer, order_hash, id)
    where order_hash is not null and state <> 2;
-- Leafing through.
create index oncebox_parked_paging on oncebox_parked (consumer, id);

-- Attempts that were begun by a process and not finished: what kills its process is found here.
create table oncebox_starts (
    consumer integer not null,
    key blob not null,
    starts integer not null,
    waits integer not null,
    at integer not null,
    primary key (consumer, key)
) strict, without rowid;
