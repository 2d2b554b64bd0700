-- All rows; there are few.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select clock.now, process, part, label, began_at, seen_at, body from clock, oncebox_counters order by process, part
