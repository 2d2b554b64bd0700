-- One replay, locked (primary key), after the time.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select
    (select now from clock),
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from oncebox_replays
where id = $2
