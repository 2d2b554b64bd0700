-- Locks rows (primary key). Those that somebody holds at this moment are passed over: operators wait for nobody.
select id, consumer, key, fingerprint, scheme, owns_record, case when due_at is null then 3 else state end
from {schema}.parked
where id = any($1::int8[])
order by id
for update skip locked
