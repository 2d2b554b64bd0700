-- Which lanes of the outbox are still held under these epochs (primary key).
select lane from oncebox_lanes
where queue = (select id from oncebox_queues where name = $1)
    and (lane, epoch) in (select value ->> 0, value ->> 1 from json_each($2))
