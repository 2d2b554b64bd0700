-- Makes lanes that are not there yet (primary key).
insert into oncebox_lanes (queue, lane, epoch)
select queues.id, number.value ->> 0, queues.epoch from oncebox_queues as queues, json_each($2) as number
where queues.id = $1
on conflict do nothing
