-- Turns records of parked messages, locked before, into records of rejected ones (primary key).
update {schema}.inbox set outcome = 1, result = $1
from unnest($2::int2[], $3::bytea[]) as asked (consumer, key)
where inbox.consumer = asked.consumer and inbox.key = asked.key and inbox.outcome = 4
