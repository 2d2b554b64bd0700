-- Makes lanes that are not there yet (primary key).
insert into {schema}.lanes (queue, lane, epoch)
select queues.id, number.lane, queues.epoch from {schema}.queues, unnest($2::int4[]) as number (lane)
where queues.id = $1
on conflict do nothing
