-- Locks the rows that are due, the longest due first (index parked_due); those that someone else is just leasing or
-- ending are passed over. A row is not due while an earlier one of its order key is there (index parked_blocking): one
-- that is in hand, dead, or just being ended in a transaction that has not committed. So of one order key nobody finds
-- a second row before the first is gone for good. Rows that wait for a gap stand outside that order. Rows that were found
-- behind another are not looked at.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select parked.id from {schema}.parked
where parked.consumer = $2 and parked.behind = 0 and parked.due_at <= (select now from clock)
    and (parked.order_hash is null or parked.state = 2 or not exists (
        select from {schema}.parked as earlier
        where earlier.consumer = $2 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.order_key = parked.order_key
    ))
order by parked.due_at, parked.id
limit $3
for update of parked skip locked
