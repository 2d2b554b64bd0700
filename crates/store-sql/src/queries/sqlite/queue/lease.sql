-- Leases rows without order: those that have waited longest (index oncebox_queue_visible).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set deliveries = deliveries + 1, visible_at = (select now from clock) + $4
where id in (
    select id from oncebox_queue
    where queue = $2 and visible_at <= (select now from clock)
    order by visible_at, id
    limit $3
)
returning
    id, deliveries, lane, order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
