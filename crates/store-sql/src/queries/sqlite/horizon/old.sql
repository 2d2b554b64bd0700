-- How many records of a consumer are older than $2, up to 100,000 (index oncebox_inbox_processed_at); the oldest; and how
-- many stay because a message is parked under their key, up to $3 (index oncebox_parked_paging, then the primary key).
with seen as (
    select count(*) as records, min(processed_at) as oldest from (
        select processed_at from oncebox_inbox
        where consumer = $1 and processed_at < $2
        order by processed_at
        limit 100000
    )
), held as (
    select count(distinct key) as records from (
        select parked.key from oncebox_consumers as consumers
        cross join oncebox_parked as parked on parked.consumer = consumers.id
        cross join oncebox_inbox as inbox on inbox.consumer = $1 and inbox.key = parked.key
        where (consumers.id = $1 or $1 = 0) and inbox.processed_at < $2
        limit $3
    )
)
select seen.records, seen.records < 100000, seen.oldest, held.records from seen, held
