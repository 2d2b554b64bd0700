-- What the inbox remembers under these keys, whoever's record it is. By primary key, consumer by consumer.
select inbox.consumer, inbox.key, inbox.outcome, inbox.processed_at, case inbox.outcome when 1 then inbox.result end
from json_each($1) as asked
cross join oncebox_consumers as consumers
cross join oncebox_inbox as inbox on inbox.consumer = consumers.id and inbox.key = unhex(asked.value ->> 0)
order by inbox.consumer
