-- Adds an entry. Nothing ever changes one.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.audit (at, consumer, replay, messages, verb, who, why, detail)
select now, $2, $3, $4, $5, $6, $7, $8 from clock
returning id
