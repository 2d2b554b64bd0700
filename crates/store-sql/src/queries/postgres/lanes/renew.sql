-- Holds the lanes that we have for another lease. One that ran out is not renewed: someone may be taking it over.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.lanes set expires_at = (select now from clock) + $4::int8
where queue = $2 and owner = $3 and expires_at > (select now from clock)
returning lane, epoch
