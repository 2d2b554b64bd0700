-- Makes rows that wait for a gap, or gave it up, due at once (index parked_gaps). One that is in hand, as its fence tells,
-- is looked at anyway.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked set due_at = (select now from clock)
from unnest($3::int8[], $4::bytea[]) as woken (order_hash, order_key)
where parked.consumer = $2 and parked.order_hash = woken.order_hash and parked.order_key = woken.order_key
    and parked.state = 2 and parked.fence % 1024 = 0 and (parked.due_at is null or parked.due_at > (select now from clock))
