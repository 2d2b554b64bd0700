-- Makes one key ours and returns it if it was free: the claim of a message that runs alone, with no set to unpack.
-- Arbitrated by the primary key: an open transaction that holds it is waited for.
insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
values ($1, $2, $3, $4, $5)
on conflict do nothing
returning key, exists (
    select from {schema}.parked where consumer = $1 and order_hash is not null and state <> 2
)::int4
