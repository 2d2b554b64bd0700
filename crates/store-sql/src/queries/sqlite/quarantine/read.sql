-- One parked message (primary key), and whether a dead row of its order key stands before it (index oncebox_parked_blocking).
select
    parked.id, parked.consumer, parked.key, parked.fingerprint, parked.scheme, parked.owns_record, parked.order_key,
    parked.state, parked.due_at, parked.class, parked.cause, parked.reason, parked.attempts, parked.first_at,
    parked.last_at, parked.note, parked.replay, parked.supersedes,
    parked.state <> 2 and parked.order_hash is not null and exists (
        select 1 from oncebox_parked as earlier
        where earlier.consumer = parked.consumer and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.state = 3 and earlier.order_key = parked.order_key
    ),
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
from oncebox_parked as parked
where parked.id = $1
