-- Of records that are gone, their keys: one row for each step of retention that archives, with the times between which its
-- records were handled, in microseconds since 1970, and the hashes of their keys, 12 bytes each and sorted. The hashes
-- come last, so that whoever looks for a time reads none of them.
create table oncebox_archive (
    id integer primary key autoincrement,
    consumer integer not null,
    first_at integer not null,
    last_at integer not null,
    keys integer not null,
    scheme integer not null,
    hashes blob not null
) strict;
create index oncebox_archive_consumer on oncebox_archive (consumer, id);

-- What was made before this time is not replayed, whoever asks, in microseconds since 1970.
alter table oncebox_consumers add column checkpoint integer;

-- Retention asks for what stored mode processed long ago.
create index oncebox_queue_processed on oncebox_queue (queue, processed_at) where processed_at is not null;
