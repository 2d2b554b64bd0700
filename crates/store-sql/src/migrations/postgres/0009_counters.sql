-- What processes counted, one row for each process and each of its parts, flushed every second or so and added up on
-- reading. `body` is JSON. The row of process 0 is the sum of those that are gone. Times are microseconds since 1970 by the
-- server's clock.
create table {schema}.counters (
    began_at int8 not null,
    seen_at int8 not null,
    process bytea not null,
    part text collate "C" not null,
    label text not null,
    body text not null,
    primary key (process, part)
) with (
    -- Few rows, each written over the last one again and again, close to it.
    fillfactor = 20,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);
