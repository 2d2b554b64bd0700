-- Makes rows that wait for a gap, or gave it up, due at once (index oncebox_parked_gaps, one look for each order key: a
-- cross join keeps its order). One that is in hand, as its fence tells, is looked at anyway. The plus sign keeps the planner off the index
-- of due rows.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set due_at = (select now from clock)
where id in (
    select waiting.id
    from json_each($3) as woken
    cross join oncebox_parked as waiting
    where waiting.consumer = $2 and waiting.order_hash = woken.value ->> 0
        and waiting.order_key = unhex(woken.value ->> 1) and waiting.state = 2
        and waiting.fence % 1024 = 0 and (+waiting.due_at is null or +waiting.due_at > (select now from clock))
)
