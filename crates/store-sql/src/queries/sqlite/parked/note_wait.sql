-- Notes one more wait (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_starts (consumer, key, starts, waits, at)
select $2, $3, 0, 1, now from clock
where true
on conflict (consumer, key) do update set waits = waits + 1, at = excluded.at
returning starts, waits
