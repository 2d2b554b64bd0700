-- Adds rows in their order; one whose id another row has that is not sent adds nothing (unique index outbox_once).
-- Returns the keys that were added.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.outbox (
    emitted_at,
    lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    clock.now,
    lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
from
    clock,
    unnest(
        $2::int4[], $3::int8[], $4::int8[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[],
        $10::bytea[], $11::int8[], $12::bytea[], $13::bytea[], $14::int8[], $15::int2[]
    ) with ordinality as message (
        lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
        made_at, made_at_nanos, position
    )
order by position
on conflict (key) where state <> 3 do nothing
returning key
