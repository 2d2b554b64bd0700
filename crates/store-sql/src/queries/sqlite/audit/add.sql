-- Adds an entry. Nothing ever changes one.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_audit (at, consumer, replay, messages, verb, who, why, detail)
select now, $2, $3, $4, $5, $6, $7, $8 from clock
returning id
