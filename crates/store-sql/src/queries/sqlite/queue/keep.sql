-- Marks rows that are still leased under these fences as processed (primary key). Fewer than asked for means that one
-- has a new owner.
-- The plus signs keep the planner off the index of visible rows: it would read the whole backlog.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set visible_at = null, processed_at = (select now from clock), error = null
where +queue = $2 and +visible_at is not null
    and (id, deliveries) in (select value ->> 0, value ->> 1 from json_each($3))
