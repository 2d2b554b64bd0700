-- How each delivery ended, for consumers that ask for it: a row for each, written apart from the messages, many at once, and
-- removed by age. Nothing of what a message says is here. `key` is what the inbox has it under; `id_hash` stands for its id
-- where the key does not tell it. `at` is in microseconds since 1970 by the server's clock. The primary key is also how old
-- rows are found.
create table {schema}.journal (
    id int8 generated always as identity,
    at int8 not null,
    id_hash int8,
    attempt int4,
    handler_millis int4,
    consumer int2 not null,
    ended int2 not null,
    was_parked int2 not null,
    key bytea not null,
    process bytea not null,
    coordinate bytea,
    cause bytea,
    primary key (consumer, at, id)
);
create index journal_key on {schema}.journal (key, at);
create index journal_id on {schema}.journal (id_hash, at) where id_hash is not null;
