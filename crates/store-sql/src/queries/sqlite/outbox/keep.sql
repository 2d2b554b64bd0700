-- Marks rows as sent (primary key). One that is marked already was marked by us: the lane is ours.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_outbox set state = 3, settled_at = (select now from clock), reason = null
where seq in (select value ->> 0 from json_each($2)) and +state in (0, 1)
