-- Lets leases look at the row that follows each of these in its order key (index parked_blocking): it may be the first
-- now. Only the next one: where more are gone, each wakes its own.
update {schema}.parked set behind = 0
from unnest($1::int8[], $2::int2[], $3::int8[], $4::bytea[]) as gone (id, consumer, order_hash, order_key)
cross join lateral (
    select waiting.id from {schema}.parked as waiting
    where waiting.consumer = gone.consumer and waiting.order_hash = gone.order_hash and waiting.state <> 2
        and waiting.id > gone.id and waiting.order_key = gone.order_key
    order by waiting.id
    limit 1
) as next
where parked.id = next.id and parked.behind = 1
