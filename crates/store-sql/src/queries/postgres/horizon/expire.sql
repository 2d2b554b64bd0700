-- Deletes old records, a bounded number at a time (index inbox_processed_at), never one of a key under which a message
-- is parked (index parked_once; for the records that consumers share, of any consumer). Records that somebody holds are
-- passed over.
with old as (
    select inbox.consumer, inbox.key from {schema}.inbox
    where inbox.consumer = $1 and inbox.outcome <> 4
        and inbox.processed_at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
        and not exists (
            select from {schema}.parked where parked.consumer = inbox.consumer and parked.key = inbox.key
        )
        and not ($1::int2 = 0 and exists (
            select from {schema}.consumers
            join {schema}.parked on parked.consumer = consumers.id and parked.key = inbox.key
        ))
    limit $3
    for update of inbox skip locked
)
delete from {schema}.inbox
using old
where inbox.consumer = old.consumer and inbox.key = old.key
returning (extract(epoch from inbox.processed_at) * 1000000)::int8
