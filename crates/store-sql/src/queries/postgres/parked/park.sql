-- Sets messages aside in their order, which becomes that of their ids; what is there already adds nothing (unique index
-- parked_once). Returns those that were added.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.parked (
    first_at, last_at, due_at, consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
    state, class, cause, reason, attempts,
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
)
select
    clock.now, clock.now, clock.now + delay, consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
    state, class, convert_from(cause, 'UTF8'), convert_from(reason, 'UTF8'), attempts,
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
from
    clock,
    unnest(
        $2::int2[], $3::bytea[], $4::int8[], $5::int2[], $6::int2[], $7::int8[], $8::bytea[],
        $9::int2[], $10::int8[], $11::int2[], $12::bytea[], $13::bytea[], $14::int4[],
        $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[], $19::int8[], $20::bytea[], $21::bytea[], $22::int8[],
        $23::int2[]
    ) with ordinality as message (
        consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
        state, delay, class, cause, reason, attempts,
        message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos, position
    )
order by position
on conflict (consumer, key, fingerprint, scheme) do nothing
returning consumer, key, fingerprint, scheme
