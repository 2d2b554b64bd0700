-- Replaces the outcomes of keys that were claimed in this transaction. By primary key.
update {schema}.inbox
set outcome = done.outcome, result = done.result
from unnest($1::int2[], $2::bytea[], $3::int2[], $4::bytea[]) as done (consumer, key, outcome, result)
where inbox.consumer = done.consumer and inbox.key = done.key
