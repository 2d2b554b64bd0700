-- How far each aggregate of a consumer has come. A version is an unsigned number in the bits of a signed one.
create table oncebox_versions (
    consumer integer not null,
    aggregate blob not null,
    version integer,
    primary key (consumer, aggregate)
) strict, without rowid;
-- What waits for a missing version, by its aggregate.
create index oncebox_parked_gaps on oncebox_parked (consumer, order_hash) where order_hash is not null and state = 2;
