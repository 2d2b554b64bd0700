-- Makes the rows of a process, one for each field of the JSON object $4 (primary key).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.counters (process, part, label, began_at, seen_at, body)
select $2::bytea, part.name, $3::text, clock.now, clock.now, part.body
from clock, jsonb_each_text($4::text::jsonb) as part (name, body)
on conflict (process, part) do update set seen_at = excluded.seen_at, body = excluded.body
