-- Makes the rows of a process, one for each field of the JSON object $4 (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_counters (process, part, label, began_at, seen_at, body)
select $2, part.key, $3, clock.now, clock.now, part.value from clock, json_each($4) as part
where true
on conflict (process, part) do update set seen_at = excluded.seen_at, body = excluded.body
