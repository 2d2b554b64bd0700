-- What the inbox remembers under these keys, in the consumer's own records and in those that consumers share. Reads,
-- and locks nothing. By primary key.
select asked.position - 1, inbox.consumer, inbox.fingerprint, inbox.scheme, inbox.outcome,
    case inbox.outcome when 4 then inbox.result end
from unnest($2::bytea[]) with ordinality as asked (key, position)
cross join lateral (
    select * from {schema}.inbox where inbox.consumer = $1 and inbox.key = asked.key
    union all
    select * from {schema}.inbox where inbox.consumer = 0 and $1 <> 0 and inbox.key = asked.key
) as inbox
