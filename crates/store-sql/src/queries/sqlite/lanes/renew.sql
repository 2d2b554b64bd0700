-- Holds the lanes that we have for another lease. One that ran out is not renewed: it is taken anew, under a new epoch.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_lanes set expires_at = (select now from clock) + $4
where queue = $2 and owner = $3 and expires_at > (select now from clock)
returning lane, epoch
