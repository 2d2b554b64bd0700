-- Leases rows that this transaction has picked and locked (primary key). Why a row waits is told of those that wait for a
-- version.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set fence = parked.fence % 2147483647 + 1, due_at = (select now from clock) + $2::int8
where parked.id = any($3::int8[])
returning
    parked.id, parked.fence, parked.fingerprint, parked.scheme, parked.owns_record, parked.attempts, parked.first_at,
    case when parked.state = 2 then parked.last_at end, parked.class, case when parked.state = 2 then parked.reason end,
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
