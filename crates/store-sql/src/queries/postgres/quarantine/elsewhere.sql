-- Those of these rows whose shared record may be that of another row (primary keys, then index parked_once): their
-- consumer is bound to keys that it shares with nobody, and was before (1); or another consumer that shares its keys, or did,
-- has parked the same message (0).
select parked.id, case when consumers.identity not like '%"scope":"global"%' then 1 else 0 end::int8
from {schema}.parked
join {schema}.consumers on consumers.id = parked.consumer
where parked.id = any($1::int8[]) and (consumers.identity not like '%"scope":"global"%' or exists (
    select from {schema}.consumers as others
    join {schema}.parked as other on other.consumer = others.id and other.key = parked.key
    where other.consumer <> parked.consumer and other.fingerprint = parked.fingerprint
        and other.scheme = parked.scheme and (others.identity is null or others.identity like '%"scope":"global"%')
))
