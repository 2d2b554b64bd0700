-- Which of these order keys have a row that a later message must not overtake: one look into parked_blocking for each,
-- whatever the planner believes of the size of the table.
select asked.position - 1
from unnest($2::int8[], $3::bytea[]) with ordinality as asked (order_hash, order_key, position)
cross join lateral (
    select from {schema}.parked
    where parked.consumer = $1 and parked.order_hash = asked.order_hash and parked.state <> 2
        and parked.order_key = asked.order_key
    limit 1
) as blocking
