-- Which of these order keys have a row that a later message must not overtake (index oncebox_parked_blocking).
select asked.key
from json_each($2) as asked
where exists (
    select 1 from oncebox_parked as parked
    where parked.consumer = $1 and parked.order_hash = asked.value ->> 0 and parked.state <> 2
        and parked.order_key = unhex(asked.value ->> 1)
)
