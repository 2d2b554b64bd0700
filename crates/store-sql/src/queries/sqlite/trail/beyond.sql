-- Whether there are more than $1 rows in the queues, parked, and in the outbox: older ones are not looked at for an id (by
-- primary keys, backwards).
select
    exists (select 1 from oncebox_queue order by id desc limit 1 offset $1),
    exists (select 1 from oncebox_parked order by id desc limit 1 offset $1),
    exists (select 1 from oncebox_outbox order by seq desc limit 1 offset $1)
