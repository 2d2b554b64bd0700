-- Makes dead rows, locked before, due now (primary key). What gave up a gap looks after it again. The fence is raised: no receipt
-- from before fits.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set state = case when state = 2 then 2 else 0 end, behind = 0, due_at = (select now from clock), fence = (parked.fence / 1024 + 1) % 2097152 * 1024, replay = $2
where id = any($3::int8[])
