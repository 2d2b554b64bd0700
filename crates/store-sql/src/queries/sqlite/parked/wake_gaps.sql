-- Makes rows that wait for a gap due at once (index oncebox_parked_gaps). One that is in hand is settled under its fence
-- all the same. The plus sign keeps the planner off the index of due rows.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set due_at = (select now from clock)
from json_each($3) as woken
where oncebox_parked.consumer = $2 and oncebox_parked.order_hash = woken.value ->> 0
    and oncebox_parked.order_key = unhex(woken.value ->> 1) and oncebox_parked.state = 2
    and +oncebox_parked.due_at > (select now from clock)
