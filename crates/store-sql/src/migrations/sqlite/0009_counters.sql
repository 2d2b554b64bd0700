-- What processes counted, one row for each process and each of its parts, flushed every second or so and added up on
-- reading. `body` is JSON. The row of process 0 is the sum of those that are gone. Times are microseconds since 1970.
create table oncebox_counters (
    process blob not null,
    part text not null,
    label text not null,
    began_at integer not null,
    seen_at integer not null,
    body text not null,
    primary key (process, part)
) strict, without rowid;
