-- What is known of this database: its identity, which stays the same for as long as the tables live.
create table {schema}.meta (
    name text collate "C" primary key,
    value text not null
);

create table {schema}.consumers (
    id int2 primary key,
    name text collate "C" not null unique
);
insert into {schema}.consumers (id, name) values (0, '*');

-- Inserted once and, on the common path, never updated. The columns stand in an order that wastes no byte on alignment,
-- and there are eight of them so that the null bitmap fits into the tuple header: about 110 bytes a record with its
-- index entry. Keys are bytes and compare as bytes: no collation can merge two of them.
create table {schema}.inbox (
    fingerprint int8 not null,
    processed_at timestamptz not null default clock_timestamp(),
    consumer int2 not null,
    scheme int2 not null,
    outcome int2 not null default 0,
    key bytea not null,
    id_hash int4,
    result bytea,
    primary key (consumer, key)
) with (
    fillfactor = 100,
    -- Insert-mostly: vacuum early for the visibility map, long before a wraparound forces one big pass.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);
-- Retention asks for the oldest records; rows arrive in time order, so a few bytes per hundred pages answer it.
create index inbox_processed_at on {schema}.inbox using brin (processed_at) with (autosummarize = on);
