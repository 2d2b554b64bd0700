-- Marks rows as sent (primary key). One that is marked already was marked by us: the lane is ours. The addition of nothing
-- keeps the planner to it.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.outbox set state = 3, settled_at = (select now from clock), reason = null
where seq = any($2::int8[]) and state + 0 in (0, 1)
