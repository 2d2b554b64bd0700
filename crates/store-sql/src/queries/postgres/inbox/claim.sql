-- Makes keys ours and returns those that were free. Arbitrated by the primary key: an open transaction that holds one
-- is waited for. The arrays come sorted, and rows are inserted in their order, so that two batches do not deadlock.
insert into {schema}.inbox (consumer, key, fingerprint, scheme, id_hash)
select consumer, key, fingerprint, scheme, id_hash
from unnest($1::int2[], $2::bytea[], $3::int8[], $4::int2[], $5::int4[])
    as asked (consumer, key, fingerprint, scheme, id_hash)
on conflict do nothing
returning consumer, key
