-- Replaces what the rows of a process hold (primary key).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.counters set seen_at = clock.now, body = part.body
from clock, jsonb_each_text($3::text::jsonb) as part (name, body)
where counters.process = $2 and counters.part = part.name
