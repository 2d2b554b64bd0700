-- Counts a start (primary key), anew if the wait before this one came to no start.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.starts (consumer, key, starts, waits, at)
select $2::int2, $3::bytea, 1, 0, now from clock
on conflict (consumer, key) do update
set starts = case when $4::int4 > 1 and starts.waits = $4::int4 then 1 else starts.starts + 1 end,
    waits = 0, at = excluded.at
returning starts
