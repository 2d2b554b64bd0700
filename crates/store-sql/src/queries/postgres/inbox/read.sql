-- Reads the records of keys that could not be claimed. A statement of its own, because it needs a newer snapshot
-- than the claim: in one statement the loser of a race sees neither its own row nor the winner's. By primary key.
select inbox.consumer, inbox.key, inbox.fingerprint, inbox.scheme, inbox.outcome, inbox.result, inbox.id_hash
from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
join {schema}.inbox using (consumer, key)
