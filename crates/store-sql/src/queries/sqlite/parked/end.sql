-- Removes rows that are still in hand under these fences (primary key). Fewer than asked for: one has a new owner. The
-- plus sign keeps the planner off the index of due rows: it would read all of them. Returns the place of each in its
-- order key, if it held anybody up.
delete from oncebox_parked
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($1))
returning id, consumer, case when state <> 2 then order_hash end, order_key
