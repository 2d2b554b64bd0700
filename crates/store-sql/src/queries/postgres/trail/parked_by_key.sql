-- What is parked under these keys, whoever's it is (unique index parked_once).
select parked.id
from unnest($2::bytea[]) as asked (key)
cross join {schema}.consumers
cross join lateral (
    select id from {schema}.parked where parked.consumer = consumers.id and parked.key = asked.key
) as parked
order by parked.id
limit $1
