-- Locks rows (primary key). Those that somebody holds at this moment are passed over: operators wait for nobody.
select id, consumer, key, fingerprint, scheme, owns_record, state
from {schema}.parked
where id = any($1::int8[])
order by id
for update skip locked
