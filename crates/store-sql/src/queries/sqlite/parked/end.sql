-- Removes rows that are still in hand under these fences (primary key). Fewer than asked for: one has a new owner. The
-- plus sign keeps the planner off the index of due rows: it would read all of them.
delete from oncebox_parked
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($1))
