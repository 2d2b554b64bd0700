-- Makes dead rows, locked before, due now (primary key). The fence is raised: no receipt from before fits.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set state = 0, behind = 0, due_at = (select now from clock), fence = parked.fence + 1, replay = $2
where id = any($3::int8[])
