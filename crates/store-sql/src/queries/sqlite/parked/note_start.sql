-- Counts a start (primary key), anew if the wait before this one came to no start.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_starts (consumer, key, starts, waits, at)
select $2, $3, 1, 0, now from clock
where true
on conflict (consumer, key) do update
set starts = case when $4 > 1 and waits = $4 then 1 else starts + 1 end, waits = 0, at = excluded.at
returning starts
