-- Adds a replay that runs.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_replays (
    consumer, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, canary_passed, who, why,
    created_at, changed_at
)
select $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now, now from clock
returning id
