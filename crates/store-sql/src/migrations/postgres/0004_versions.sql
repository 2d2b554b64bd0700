-- How far each aggregate of a consumer has come; null while it is only locked. A version is an unsigned number in the
-- bits of a signed one.
create table {schema}.versions (
    version int8,
    consumer int2 not null,
    aggregate bytea not null,
    primary key (consumer, aggregate)
) with (
    -- Each version is written over the last one, close to it where there is room.
    fillfactor = 80
);
-- What waits for a missing version, by its aggregate.
create index parked_gaps on {schema}.parked (consumer, order_hash) where order_hash is not null and state = 2;
