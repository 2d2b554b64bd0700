-- What the inbox remembers under these keys, whoever's record it is. By primary key, consumer by consumer. Locks nothing.
select
    inbox.consumer, inbox.key, inbox.outcome, (extract(epoch from inbox.processed_at) * 1000000)::int8,
    case inbox.outcome when 1 then inbox.result end
from unnest($1::bytea[]) as asked (key)
cross join {schema}.consumers
cross join lateral (
    select * from {schema}.inbox where inbox.consumer = consumers.id and inbox.key = asked.key
) as inbox
order by inbox.consumer
