-- Locks the oldest visible rows of lanes that are held (index queue_ordered), and waits for them: passing over a locked
-- row would lease a later one of its order key. A row is left out while an earlier one of its order key is invisible
-- (index queue_blocking). The lanes stay locked against a takeover until this transaction ends.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as (
    select lanes.lane from {schema}.lanes
    join unnest($4::int4[], $5::int8[]) as asked (lane, epoch) using (lane, epoch)
    where lanes.queue = $2 and lanes.expires_at > (select now from clock)
    for key share of lanes
)
select queue.id from {schema}.queue
where queue.queue = $2 and queue.lane in (select lane from held) and queue.visible_at <= (select now from clock)
    and not exists (
        select from {schema}.queue as earlier
        where earlier.queue = queue.queue and earlier.order_hash = queue.order_hash
            and earlier.visible_at > (select now from clock) and earlier.lane is not null
            and earlier.id < queue.id and earlier.order_key = queue.order_key
    )
order by queue.id
limit $3
for update of queue
