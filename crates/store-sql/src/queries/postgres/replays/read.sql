-- One replay, locked (primary key), after the time.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select
    (select now from clock),
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from {schema}.replays
where id = $2
for update of replays
