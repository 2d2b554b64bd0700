-- Counts a start (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_starts (consumer, key, starts, waits, at)
select $2, $3, 1, 0, now from clock
where true
on conflict (consumer, key) do update set starts = starts + 1, waits = 0, at = excluded.at
returning starts
