-- Turns what still says that rows are parked, which are about to be ended, into claims, as if they were made now. Another
-- deployment wrote it, whose keys or scope the one that ends the rows does not know. Of their consumer's own records, and of
-- the shared ones that name it. Some, of former versions, name none: of those where it shares its keys, or did, and no other
-- consumer that does, or did, has parked the same message (primary keys; index oncebox_parked_once).
update oncebox_inbox
set outcome = 0, result = null, processed_at = cast(unixepoch('subsec') * 1000000 as integer)
from (
    select inbox.consumer, inbox.key
    from oncebox_parked as parked
    cross join oncebox_inbox as inbox on inbox.consumer in (parked.consumer, 0) and inbox.key = parked.key
    where parked.id in (select value ->> 0 from json_each($1)) and inbox.outcome = 4
        and inbox.fingerprint = parked.fingerprint and inbox.scheme = parked.scheme
        and (inbox.consumer = parked.consumer
            or inbox.result = cast(cast(parked.consumer as text) as blob) or inbox.result is null and exists (
            select 1 from oncebox_consumers as consumers
            where consumers.id = parked.consumer
                and (consumers.identity is null or consumers.identity like '%"scope":"global"%')
        ) and not exists (
            select 1 from oncebox_consumers as consumers
            cross join oncebox_parked as other on other.consumer = consumers.id and other.key = parked.key
            where other.consumer <> parked.consumer and other.fingerprint = parked.fingerprint
                and other.scheme = parked.scheme
                and (consumers.identity is null or consumers.identity like '%"scope":"global"%')
        ))
) as ended
where oncebox_inbox.consumer = ended.consumer and oncebox_inbox.key = ended.key
