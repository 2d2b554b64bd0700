-- Waits until nobody is just noting that rows in the lanes of these wait behind others, and lets nobody begin to before
-- this transaction has ended. Else one that still sees a row which we take away would note of another that it waits
-- behind it after we have woken that, and nobody would wake it again.
select lanes.lane from {schema}.lanes
where lanes.queue = (select id from {schema}.queues where name = $1)
    and lanes.lane in (select outbox.lane from {schema}.outbox where outbox.seq = any($2::int8[]))
order by lanes.lane
for key share of lanes
