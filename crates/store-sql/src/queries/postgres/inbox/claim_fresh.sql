-- Makes keys ours that are all expected to be free, in half the time that ON CONFLICT takes to look first. One that is not
-- free fails the statement, and with it the transaction, which is then begun again for the careful claim. Sorted, like it.
with claimed as (
    insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
    select $1::int2, $2::int2, key, fingerprint, id_hash
    from unnest($3::bytea[], $4::int8[], $5::int4[]) as asked (key, fingerprint, id_hash)
)
-- Whether something of this consumer is parked that may block an order key (parked_blocking).
select exists (
    select from {schema}.parked where consumer = $1::int2 and order_hash is not null and state <> 2
)::int4
