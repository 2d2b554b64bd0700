-- Those of these rows whose message another consumer has parked too (primary key, then index parked_once): a shared record
-- that says parked may be of that one.
select parked.id from {schema}.parked
where parked.id = any($1::int8[]) and exists (
    select from {schema}.consumers
    join {schema}.parked as other on other.consumer = consumers.id and other.key = parked.key
    where other.consumer <> parked.consumer and other.fingerprint = parked.fingerprint and other.scheme = parked.scheme
)
