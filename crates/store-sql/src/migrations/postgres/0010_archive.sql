-- Of records that are gone, their keys: one row for each step of retention that archives, with the times between which its
-- records were handled, in microseconds since 1970, and the hashes of their keys, 12 bytes each and sorted. Hashes do not
-- compress: they go out of line as they are, so that whoever looks for a time reads none of them.
create table {schema}.archive (
    id int8 generated always as identity,
    first_at int8 not null,
    last_at int8 not null,
    keys int4 not null,
    consumer int2 not null,
    scheme int2 not null,
    hashes bytea not null,
    primary key (consumer, id)
);
alter table {schema}.archive alter column hashes set storage external;

-- What was made before this time is not replayed, whoever asks, in microseconds since 1970.
alter table {schema}.consumers add column checkpoint int8;

-- Retention asks for what stored mode processed long ago.
create index queue_processed on {schema}.queue (queue, processed_at) where processed_at is not null;
