-- Adds entries in their order, each at the time at which it was noted.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_journal (
    process, at, consumer, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause
)
select
    $2, clock.now - (value ->> 1), value ->> 0, unhex(value ->> 2), value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, unhex(value ->> 8), unhex(value ->> 9)
from clock, json_each($3) as entry
where true
order by entry.key
