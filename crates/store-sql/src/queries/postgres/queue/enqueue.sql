-- Adds messages in their order; one whose key is known already adds nothing (unique index queue_once). Returns the keys
-- that were added.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.queue (
    queue, visible_at, received_at,
    lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    $2::int2, clock.now, clock.now,
    lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
from
    clock,
    unnest(
        $3::int4[], $4::int8[], $5::bytea[], $6::int8[], $7::int2[], $8::bytea[], $9::bytea[],
        $10::bytea[], $11::bytea[], $12::int8[], $13::bytea[], $14::bytea[], $15::int8[], $16::int2[]
    ) with ordinality as message (
        lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
        made_at, made_at_nanos, position
    )
order by position
on conflict (queue, key) where key is not null do nothing
returning key
