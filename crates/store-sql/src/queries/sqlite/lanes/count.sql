-- How many lanes a queue has, and how many members share them.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select
    (select count(*) from oncebox_lanes where queue = $2),
    (select count(*) from oncebox_members where queue = $2 and expires_at > (select now from clock))
