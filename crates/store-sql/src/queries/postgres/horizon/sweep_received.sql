-- Removes what stored mode processed before $3, a bounded number at a time (index queue_processed, then the primary key),
-- never one of a key under which a message is parked (index parked_once). Rows that somebody holds are passed over.
delete from {schema}.queue
where processed_at is not null and id = any (array(
    select queue.id from {schema}.queue
    where queue.queue = (select queues.id from {schema}.queues where queues.name = $2) and queue.processed_at < $3
        and not exists (select from {schema}.parked where parked.consumer = $1 and parked.key = queue.key)
    order by queue.processed_at
    limit $4
    for update of queue skip locked
))
