-- Makes keys ours and returns those that were free. Arbitrated by the primary key: an open transaction that holds one
-- is waited for. The arrays come sorted, and rows are inserted in their order, so that two batches do not deadlock.
insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
select $1::int2, $2::int2, key, fingerprint, id_hash
from unnest($3::bytea[], $4::int8[], $5::int4[]) as asked (key, fingerprint, id_hash)
on conflict do nothing
returning key
