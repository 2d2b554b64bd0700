-- Deletes old records from time $4 on, a bounded number at a time (index oncebox_inbox_processed_at), never one of a key
-- under which a message is parked (index oncebox_parked_once; for the records that consumers share, of any consumer).
delete from oncebox_inbox
where consumer = $1 and key in (
    select old.key from oncebox_inbox as old
    where old.consumer = $1 and old.outcome <> 4 and old.processed_at >= $4 and old.processed_at < $2
        and not exists (select 1 from oncebox_parked as parked where parked.consumer = $1 and parked.key = old.key)
        and not ($1 = 0 and exists (
            select 1 from oncebox_consumers as consumers
            cross join oncebox_parked as parked on parked.consumer = consumers.id and parked.key = old.key
        ))
    order by old.processed_at
    limit $3
)
returning processed_at, key
