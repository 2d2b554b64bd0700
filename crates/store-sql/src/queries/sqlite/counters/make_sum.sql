-- Makes rows for sums that are not there yet (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_counters (process, part, label, began_at, seen_at, body)
select $2, part.key, '', clock.now, clock.now, '{}' from clock, json_each($3) as part
where true
on conflict (process, part) do nothing
