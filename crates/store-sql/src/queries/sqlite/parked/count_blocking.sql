-- How many rows of each order key a later message must not overtake (index oncebox_parked_blocking), no more than a bound.
select (
    select count(*) from (
        select 1 from oncebox_parked as parked
        where parked.consumer = $1 and parked.order_hash = asked.value ->> 0 and parked.state <> 2
            and parked.order_key = unhex(asked.value ->> 1)
        limit $2
    )
)
from json_each($3) as asked
order by asked.key
