-- How many rows of each order key a later message must not overtake (index parked_blocking), no more than a bound.
select counted.rows
from unnest($3::int8[], $4::bytea[]) with ordinality as asked (order_hash, order_key, position)
cross join lateral (
    select count(*) as rows from (
        select from {schema}.parked
        where parked.consumer = $1 and parked.order_hash = asked.order_hash and parked.state <> 2
            and parked.order_key = asked.order_key
        limit $2
    ) as blocking
) as counted
order by asked.position
