-- Takes away the rows of up to $4 processes, $2 not among them, that were not seen for $3.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
delete from oncebox_counters
where process in (
    select distinct process from oncebox_counters
    where process <> $2 and seen_at < (select now from clock) - $3
    limit $4
)
returning part, body, seen_at
