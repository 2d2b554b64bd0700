-- Marks rows that are still leased under these fences as processed (primary key). Fewer than asked for means that one
-- has a new owner.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.queue
set visible_at = null, processed_at = (select now from clock), error = null
from unnest($3::int8[], $4::int4[]) as receipt (id, fence)
where queue.id = receipt.id and queue.queue = $2 and queue.deliveries = receipt.fence and queue.visible_at is not null
