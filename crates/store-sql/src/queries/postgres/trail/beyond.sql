-- Whether there are more than $1 rows in the queues, parked, and in the outbox: older ones are not looked at for an id (by
-- primary keys, backwards).
select
    exists (select from {schema}.queue order by id desc limit 1 offset $1)::int4,
    exists (select from {schema}.parked order by id desc limit 1 offset $1)::int4,
    exists (select from {schema}.outbox order by seq desc limit 1 offset $1)::int4
