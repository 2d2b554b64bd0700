-- Leases rows that this transaction has picked and locked. It looks again with a fresh snapshot: while we waited for
-- a lock, its holder may have extended its lease, and then later rows of that order key must wait (index
-- queue_blocking).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.queue
set deliveries = queue.deliveries + 1, visible_at = (select now from clock) + $3::int8
where queue.id = any($4::int8[]) and queue.queue = $2 and queue.visible_at <= (select now from clock)
    and not exists (
        select from {schema}.queue as earlier
        where earlier.queue = queue.queue and earlier.order_hash = queue.order_hash
            and earlier.visible_at > (select now from clock) and earlier.lane is not null
            and earlier.id < queue.id and earlier.order_key = queue.order_key
    )
returning
    queue.id, queue.deliveries, queue.lane, queue.order_key, queue.message_id, queue.source, queue.kind,
    queue.version, queue.headers, queue.payload, queue.made_at, queue.made_at_nanos
