-- Notes a wait (primary key). Two in a row: a process died that did nothing with the message.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.starts (consumer, key, starts, waits, at)
select $2::int2, $3::bytea, 0, true, now from clock
on conflict (consumer, key) do update
set starts = case when starts.waits then 0 else starts.starts end, waits = true, at = excluded.at
returning starts
