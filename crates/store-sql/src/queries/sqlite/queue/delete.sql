-- Ends rows that are still leased under these fences (primary key). Fewer than asked for: one has a new owner.
-- The plus signs keep the planner off the index of visible rows: it would read the whole backlog.
delete from oncebox_queue
where +queue = $1 and +visible_at is not null
    and (id, deliveries) in (select value ->> 0, value ->> 1 from json_each($2))
