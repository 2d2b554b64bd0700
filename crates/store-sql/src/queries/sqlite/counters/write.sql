-- Replaces what the rows of a process hold (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_counters set
    seen_at = (select now from clock),
    body = (select value from json_each($3) where key = oncebox_counters.part)
where process = $2 and part in (select key from json_each($3))
