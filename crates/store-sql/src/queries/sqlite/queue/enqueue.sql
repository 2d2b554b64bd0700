-- Adds messages in their order; one whose key is known already adds nothing (unique index oncebox_queue_once). Returns
-- the keys that were added.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_queue (
    queue, visible_at, received_at,
    lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    $2, clock.now, clock.now,
    value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3, value ->> 4, unhex(value ->> 5),
    unhex(value ->> 6), unhex(value ->> 7), unhex(value ->> 8), value ->> 9,
    unhex(value ->> 10), unhex(value ->> 11), value ->> 12, value ->> 13
from clock, json_each($3) as message
where true
order by message.key
on conflict (queue, key) where key is not null do nothing
returning key
