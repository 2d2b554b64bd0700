-- How far a consumer has come in each log that it reads by offsets, a partition of a Kafka topic. `epoch` counts owners:
-- an older one can change nothing. `next` is the next message to read, null before it is known where to begin; `witness`
-- is a hash of the message before it, by which the log is known again.
create table oncebox_offsets (
    consumer integer not null,
    log blob not null,
    epoch integer not null,
    next integer,
    witness integer,
    primary key (consumer, log)
) strict, without rowid;
-- Rows that were sent and kept, oldest first, for their retention.
create index oncebox_outbox_sent on oncebox_outbox (settled_at) where state = 3;
