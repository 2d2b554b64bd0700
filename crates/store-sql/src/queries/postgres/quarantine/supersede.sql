-- Gives a dead row, locked before, another message (primary key). Its place in the order of its key stays, and its past.
update {schema}.parked
set supersedes = $2, key = $3, fingerprint = $4, scheme = $5, owns_record = 1, replay = null, fence = (parked.fence / 1024 + 1) % 2097152 * 1024,
    message_order_key = message.message_order_key, message_id = message.message_id, source = message.source,
    kind = message.kind, version = message.version, headers = message.headers, payload = message.payload,
    made_at = message.made_at, made_at_nanos = message.made_at_nanos
from unnest(
    $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::int8[], $11::bytea[], $12::bytea[], $13::int8[],
    $14::int2[]
) as message (
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
)
where parked.id = $1
