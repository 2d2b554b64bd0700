-- Removes rows that are still in hand under these fences (primary key). Fewer than asked for: one has a new owner.
-- Returns the place of each in its order key, if it held anybody up.
delete from {schema}.parked
using unnest($1::int8[], $2::int4[]) as receipt (id, fence)
where parked.id = receipt.id and parked.fence = receipt.fence and parked.due_at is not null
returning parked.id, parked.consumer, case when parked.state <> 2 then parked.order_hash end, parked.order_key
