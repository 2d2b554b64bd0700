-- Makes dead rows due now (primary key). The fence is raised: no receipt from before fits.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set state = 0, behind = 0, due_at = (select now from clock), fence = fence + 1, replay = $2
where id in (select value ->> 0 from json_each($3))
