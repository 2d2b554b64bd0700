-- The rows of a consumer, or of all (0), with this content under this key (primary key, then unique index parked_once).
select parked.id
from {schema}.consumers
join {schema}.parked on parked.consumer = consumers.id and parked.key = $2
where $1 in (consumers.id, 0) and parked.fingerprint = $3 and parked.scheme = $4
