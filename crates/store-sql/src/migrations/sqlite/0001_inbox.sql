-- What is known of this database: its identity, which stays the same for as long as the tables live.
create table oncebox_meta (
    name text primary key,
    value text not null
) strict, without rowid;

create table oncebox_consumers (
    id integer primary key,
    name text not null unique
) strict;
insert into oncebox_consumers (id, name) values (0, '*');

-- Inserted once and, on the common path, never updated. Keys are blobs and compare as bytes: no collation can merge two
-- of them. `processed_at` is in microseconds since 1970.
create table oncebox_inbox (
    consumer integer not null,
    key blob not null,
    fingerprint integer not null,
    scheme integer not null,
    outcome integer not null default 0,
    processed_at integer not null,
    id_hash integer,
    result blob,
    primary key (consumer, key)
) strict, without rowid;
