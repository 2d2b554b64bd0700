-- Removes what stored mode processed before $3, a bounded number at a time (index oncebox_queue_processed, then the primary
-- key), never one of a key under which a message is parked (index oncebox_parked_once).
delete from oncebox_queue
where +processed_at is not null and id in (
    select old.id from oncebox_queue as old
    where old.queue = (select queues.id from oncebox_queues as queues where queues.name = $2)
        and old.processed_at is not null and old.processed_at < $3
        and not exists (select 1 from oncebox_parked as parked where parked.consumer = $1 and parked.key = old.key)
    order by old.processed_at
    limit $4
)
