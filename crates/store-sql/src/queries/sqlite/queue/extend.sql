-- Keeps rows that are still ours invisible for another lease (primary key). Rows with a new owner are left alone.
-- The plus signs keep the planner off the index of visible rows: it would read the whole backlog.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set visible_at = (select now from clock) + $3, error = coalesce($4, error)
where +queue = $2 and +visible_at is not null
    and (id, deliveries) in (
        select receipt.value ->> 0, receipt.value ->> 1 from json_each($5) as receipt
        where receipt.value ->> 2 is null or exists (
            select 1 from oncebox_lanes as lanes
            where lanes.queue = $2 and lanes.lane = receipt.value ->> 2 and lanes.epoch = receipt.value ->> 3
        )
    )
