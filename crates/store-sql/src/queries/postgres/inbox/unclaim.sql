-- Takes back keys that were claimed in this transaction. By primary key.
delete from {schema}.inbox
using unnest($1::int2[], $2::bytea[]) as back (consumer, key)
where inbox.consumer = back.consumer and inbox.key = back.key
