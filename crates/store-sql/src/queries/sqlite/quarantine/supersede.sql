-- Gives a dead row another message (primary key). Its place in the order of its key stays, and its past.
update oncebox_parked
set supersedes = $2, key = $3, fingerprint = $4, scheme = $5, owns_record = 1, replay = null, fence = (fence / 1024 + 1) % 2097152 * 1024,
    message_order_key = unhex(value ->> 0), message_id = unhex(value ->> 1), source = unhex(value ->> 2),
    kind = unhex(value ->> 3), version = value ->> 4, headers = unhex(value ->> 5), payload = unhex(value ->> 6),
    made_at = value ->> 7, made_at_nanos = value ->> 8
from json_each($6) as message
where oncebox_parked.id = $1
