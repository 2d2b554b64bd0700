-- How each delivery ended, for consumers that ask for it: a row for each, written apart from the messages, many at once, and
-- removed by age. Nothing of what a message says is here. `key` is what the inbox has it under; `id_hash` stands for its id
-- where the key does not tell it. `at` is in microseconds since 1970.
create table oncebox_journal (
    id integer primary key,
    at integer not null,
    id_hash integer,
    attempt integer,
    handler_millis integer,
    consumer integer not null,
    ended integer not null,
    was_parked integer not null,
    key blob not null,
    process blob not null,
    coordinate blob,
    cause blob
) strict;
create index oncebox_journal_age on oncebox_journal (consumer, at);
create index oncebox_journal_key on oncebox_journal (key, at);
create index oncebox_journal_id on oncebox_journal (id_hash, at) where id_hash is not null;
