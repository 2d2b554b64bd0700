-- The newest replays that are not over (index oncebox_replays_open, backwards), of one consumer or of all.
select
    0,
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from oncebox_replays
where state < 3 and ($1 is null or consumer = $1)
order by id desc
limit $2
