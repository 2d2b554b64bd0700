-- Notes one more wait (primary key).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.starts (consumer, key, starts, waits, at)
select $2::int2, $3::bytea, 0, 1, now from clock
on conflict (consumer, key) do update set waits = starts.waits + 1, at = excluded.at
returning starts, waits
