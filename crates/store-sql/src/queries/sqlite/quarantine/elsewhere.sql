-- Those of these rows whose message another consumer has parked too (primary key, then index oncebox_parked_once): a shared record
-- that says parked may be of that one.
select parked.id from oncebox_parked as parked
where parked.id in (select value ->> 0 from json_each($1)) and exists (
    select 1 from oncebox_consumers as consumers
    cross join oncebox_parked as other on other.consumer = consumers.id and other.key = parked.key
    where other.consumer <> parked.consumer and other.fingerprint = parked.fingerprint and other.scheme = parked.scheme
)
