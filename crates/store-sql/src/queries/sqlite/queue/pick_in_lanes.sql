-- Picks the oldest visible rows of lanes that are held (index oncebox_queue_ordered). A row is left out while an
-- earlier one of its order key is invisible (index oncebox_queue_blocking).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
held as materialized (
    select lanes.lane from json_each($4) as asked
    cross join oncebox_lanes as lanes
        on lanes.queue = $2 and lanes.lane = asked.value ->> 0 and lanes.epoch = asked.value ->> 1
    where lanes.expires_at > (select now from clock)
)
select queue.id from oncebox_queue as queue
where queue.queue = $2 and queue.lane is not null and queue.visible_at is not null
    and +queue.visible_at <= (select now from clock) and queue.lane in (select lane from held)
    and not exists (
        select 1 from oncebox_queue as earlier
        where earlier.queue = queue.queue and earlier.order_hash = queue.order_hash
            and earlier.visible_at > (select now from clock) and earlier.lane is not null
            and earlier.id < queue.id and earlier.order_key = queue.order_key
    )
order by queue.id
limit $3
