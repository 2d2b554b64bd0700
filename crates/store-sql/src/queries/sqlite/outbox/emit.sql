-- Adds rows in their order; one whose id another row has that is not sent adds nothing (unique index
-- oncebox_outbox_once). Returns the keys that were added.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_outbox (
    emitted_at,
    lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    clock.now,
    value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), unhex(value ->> 4), unhex(value ->> 5),
    unhex(value ->> 6), unhex(value ->> 7), unhex(value ->> 8), value ->> 9, unhex(value ->> 10), unhex(value ->> 11),
    value ->> 12, value ->> 13
from clock, json_each($2) as message
where true
order by message.key
on conflict (key) where state <> 3 do nothing
returning key
