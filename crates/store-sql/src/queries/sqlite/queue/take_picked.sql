-- Leases rows that this transaction has picked. It is the only writer: nothing has changed since.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set deliveries = deliveries + 1, visible_at = (select now from clock) + $3
where queue = $2 and id in (select value ->> 0 from json_each($4))
returning
    id, deliveries, lane, order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
