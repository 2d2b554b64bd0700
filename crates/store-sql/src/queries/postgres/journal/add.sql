-- Adds entries in their order, each at the time at which it was noted.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.journal (
    process, at, consumer, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause
)
select $2, clock.now - ago, consumer, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause
from
    clock,
    unnest(
        $3::int2[], $4::int8[], $5::bytea[], $6::int8[], $7::int2[], $8::int4[], $9::int2[], $10::int4[], $11::bytea[],
        $12::bytea[]
    ) with ordinality as entry (
        consumer, ago, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause, position
    )
order by position
