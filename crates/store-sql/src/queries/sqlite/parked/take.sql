-- Leases rows that this transaction has picked (primary key). It is the only writer: nothing has changed since.
-- Why a row waits is told of those that wait for a version.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set fence = fence % 2147483647 + 1, due_at = (select now from clock) + $2
where id in (select value ->> 0 from json_each($3))
returning
    id, fence, fingerprint, scheme, owns_record, attempts, first_at,
    case when state = 2 then last_at end, class, case when state = 2 then reason end, message_order_key, message_id,
    source, kind, version, headers, payload, made_at, made_at_nanos
