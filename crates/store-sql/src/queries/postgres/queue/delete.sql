-- Ends rows that are still leased under these fences (primary key). Fewer than asked for: one has a new owner.
delete from {schema}.queue
using unnest($2::int8[], $3::int4[]) as receipt (id, fence)
where queue.id = receipt.id and queue.queue = $1 and queue.deliveries = receipt.fence and queue.visible_at is not null
