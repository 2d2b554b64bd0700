-- Removes rows that are still in hand under these fences (primary key). Fewer than asked for: one has a new owner.
delete from {schema}.parked
using unnest($1::int8[], $2::int4[]) as receipt (id, fence)
where parked.id = receipt.id and parked.fence = receipt.fence and parked.due_at is not null
