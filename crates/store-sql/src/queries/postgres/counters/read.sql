-- All rows; there are few.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select clock.now, process, part, label, began_at, seen_at, body from clock, {schema}.counters order by process, part
