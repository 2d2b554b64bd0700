-- Sets messages aside in their order, which becomes that of their ids; what is there already adds nothing (unique index
-- oncebox_parked_once). Returns those that were added.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_parked (
    first_at, last_at, due_at, consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
    state, class, cause, reason, attempts,
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
)
select
    clock.now, clock.now, clock.now + (value ->> 8),
    value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4, value ->> 5, unhex(value ->> 6),
    value ->> 7, value ->> 9, cast(unhex(value ->> 10) as text), cast(unhex(value ->> 11) as text), value ->> 12,
    unhex(value ->> 13), unhex(value ->> 14), unhex(value ->> 15), unhex(value ->> 16), value ->> 17,
    unhex(value ->> 18), unhex(value ->> 19), value ->> 20, value ->> 21
from clock, json_each($2) as message
where true
order by message.key
on conflict (consumer, key, fingerprint, scheme) do nothing
returning consumer, key, fingerprint, scheme
