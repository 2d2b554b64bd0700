-- Takes free lanes, under a new epoch that fences off whoever had them before.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_lanes set owner = $3, epoch = epoch + 1, expires_at = (select now from clock) + $4
where queue = $2 and lane in (
    select lane from oncebox_lanes
    where queue = $2 and (owner is null or expires_at <= (select now from clock))
        and lane not in (select value ->> 0 from json_each($6))
    order by lane
    limit $5
)
returning lane, epoch
