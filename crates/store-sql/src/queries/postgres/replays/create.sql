-- Adds a replay that runs.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.replays (
    consumer, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, canary_passed, who, why,
    created_at, changed_at
)
select $2::int2, $3, $4::int8, $5::int8, $6, $7, $8, $9, $10, $11, $12, $13, now, now from clock
returning id
