-- Takes away the rows of up to $4 processes, $2 not among them, that were not seen for $3. All rows of a process have one
-- time, so they are taken together; one that flushes at this moment is waited for, and then stays.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
gone as (
    select distinct process from {schema}.counters
    where process <> $2 and seen_at < (select now from clock) - $3::int8
    limit $4
)
delete from {schema}.counters
where process in (select process from gone) and seen_at < (select now from clock) - $3::int8
returning part, body, seen_at
