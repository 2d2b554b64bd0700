-- Gives back rows that are still ours, due after a delay (primary key). The fence is raised: a late extension of the
-- lease must not hide the row. It starts again from 0 where the next one would not fit 4 bytes; only its being equal counts. The plus sign keeps the planner off the index of due rows: it would read all of them.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set fence = (fence / 1024 + 1) % 2097152 * 1024, behind = 0, due_at = (select now from clock) + $2
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($3))
