-- Makes dead rows due now (primary key). What gave up a gap looks after it again. The fence is raised: no receipt
-- from before fits.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set state = case when state = 2 then 2 else 0 end, behind = 0, due_at = (select now from clock), fence = (fence / 1024 + 1) % 2097152 * 1024, replay = $2
where id in (select value ->> 0 from json_each($3))
