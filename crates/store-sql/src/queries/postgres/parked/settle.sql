-- Turns what still says that rows are parked, which are about to be ended, into claims, as if they were made now. Another
-- deployment wrote it, whose keys or scope the one that ends the rows does not know. Of their consumer's own records, and of
-- the shared ones that name it. Some, of former versions, name none: of those where it shares its keys, or did, and no other
-- consumer that does, or did, has parked the same message (primary keys; index parked_once). Nobody else changes such
-- a record while its row is in hand. The limit keeps to the primary key, whatever the planner believes of the size of the
-- table.
update {schema}.inbox
set outcome = 0, result = null, processed_at = clock_timestamp()
from (
    select record.consumer, record.key
    from {schema}.parked
    cross join lateral (values (parked.consumer), (0::int2)) as owner (consumer)
    cross join lateral (
        select inbox.consumer, inbox.key, inbox.result from {schema}.inbox
        where inbox.consumer = owner.consumer and inbox.key = parked.key and inbox.outcome = 4
            and inbox.fingerprint = parked.fingerprint and inbox.scheme = parked.scheme
        limit 1
    ) as record
    where parked.id = any($1::int8[]) and (record.consumer = parked.consumer
        or record.result = convert_to(parked.consumer::text, 'UTF8') or record.result is null and exists (
        select from {schema}.consumers
        where consumers.id = parked.consumer
            and (consumers.identity is null or consumers.identity like '%"scope":"global"%')
    ) and not exists (
        select from {schema}.consumers
        join {schema}.parked as other on other.consumer = consumers.id and other.key = parked.key
        where other.consumer <> parked.consumer and other.fingerprint = parked.fingerprint
            and other.scheme = parked.scheme
            and (consumers.identity is null or consumers.identity like '%"scope":"global"%')
    ))
) as ended
where inbox.consumer = ended.consumer and inbox.key = ended.key and inbox.outcome = 4
