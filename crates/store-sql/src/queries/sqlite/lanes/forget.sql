-- Forgets members that are gone.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
delete from oncebox_members where queue = $2 and expires_at <= (select now from clock)
