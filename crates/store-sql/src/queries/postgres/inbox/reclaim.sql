-- Turns records that this transaction has locked into claims, as if they were made now. By primary key.
update {schema}.inbox
set outcome = 0, result = null, processed_at = clock_timestamp()
from unnest($1::int2[], $2::bytea[]) as parked (consumer, key)
where inbox.consumer = parked.consumer and inbox.key = parked.key and inbox.outcome = 4
