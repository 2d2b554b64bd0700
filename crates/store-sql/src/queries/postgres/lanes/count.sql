-- How many lanes a queue has, and how many members share them.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select
    (select count(*) from {schema}.lanes where queue = $2),
    (select count(*) from {schema}.members where queue = $2 and expires_at > (select now from clock))
