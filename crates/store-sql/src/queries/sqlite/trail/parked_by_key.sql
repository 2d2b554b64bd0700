-- What is parked under these keys, whoever's it is (unique index oncebox_parked_once).
select parked.id
from json_each($2) as asked
cross join oncebox_consumers as consumers
cross join oncebox_parked as parked on parked.consumer = consumers.id and parked.key = unhex(asked.value ->> 0)
order by parked.id
limit $1
