-- Makes keys ours and returns those that were free. Arbitrated by the primary key: an open transaction that holds one
-- is waited for. The arrays come sorted, and rows are inserted in their order, so that two batches do not deadlock.
-- With it, once for all, whether something of this consumer is parked that may block an order key (parked_blocking).
insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
select $1::int2, $2::int2, key, fingerprint, id_hash
from unnest($3::bytea[], $4::int8[], $5::int4[]) as asked (key, fingerprint, id_hash)
on conflict do nothing
returning key, exists (
    select from {schema}.parked where consumer = $1::int2 and order_hash is not null and state <> 2
)::int4
