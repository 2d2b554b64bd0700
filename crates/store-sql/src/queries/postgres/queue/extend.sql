-- Keeps rows that are still ours invisible for another lease (primary key). Rows with a new owner are left alone, and
-- rows that are locked are passed over: they are just being settled, and waiting for them could deadlock.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
ours as (
    select queue.id
    from {schema}.queue
    join unnest($5::int8[], $6::int4[], $7::int4[], $8::int8[]) as receipt (id, fence, lane, epoch)
        on queue.id = receipt.id and queue.deliveries = receipt.fence
    where queue.queue = $2 and queue.visible_at is not null
        and (receipt.lane is null or exists (
            select from {schema}.lanes
            where lanes.queue = $2 and lanes.lane = receipt.lane and lanes.epoch = receipt.epoch
        ))
    for update of queue skip locked
)
update {schema}.queue
set visible_at = (select now from clock) + $3::int8, error = coalesce($4, queue.error)
from ours
where queue.id = ours.id
