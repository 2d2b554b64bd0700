-- Copies with this id in any queue. No index leads there: the newest rows are looked at, by primary key.
select queues.name, queue.id, queue.kind, queue.source, queue.received_at, queue.visible_at, queue.deliveries, queue.error
from (select * from oncebox_queue order by id desc limit $3) as queue
join oncebox_queues as queues on queues.id = queue.queue
where queue.message_id = $2
order by queue.id
limit $1
