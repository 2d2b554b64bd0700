-- How far a consumer has come in each log that it reads by offsets, a partition of a Kafka topic. `epoch` counts owners:
-- an older one can change nothing. `next` is the next message to read, null before it is known where to begin; `witness`
-- is a hash of the message before it, by which the log is known again.
create table {schema}.offsets (
    epoch int8 not null,
    next int8,
    witness int8,
    consumer int2 not null,
    log bytea not null,
    primary key (consumer, log)
) with (
    -- Few rows, each written over the last one with every commit, close to it.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
-- Rows that were sent and kept, oldest first, for their retention.
create index outbox_sent on {schema}.outbox (settled_at) where state = 3;
