-- Makes rows for sums that are not there yet (primary key).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.counters (process, part, label, began_at, seen_at, body)
select $2::bytea, part.name, '', clock.now, clock.now, '{}'
from clock, jsonb_object_keys($3::text::jsonb) as part (name)
on conflict (process, part) do nothing
