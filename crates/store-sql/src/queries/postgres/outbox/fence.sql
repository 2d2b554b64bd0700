-- Which lanes of the outbox are still held under these epochs (primary key). They stay locked until this transaction ends:
-- a takeover waits for it, while a renewal, which changes no key column, does not.
select lanes.lane from {schema}.lanes
join unnest($2::int4[], $3::int8[]) as held (lane, epoch) using (lane, epoch)
where lanes.queue = (select id from {schema}.queues where name = $1)
order by lanes.lane
for key share of lanes
