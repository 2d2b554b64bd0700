-- Keeps rows that are still ours in hand for another lease (primary key). Rows with a new owner are left alone. The
-- plus sign keeps the planner off the index of due rows: it would read all of them.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set due_at = (select now from clock) + $2
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($3))
