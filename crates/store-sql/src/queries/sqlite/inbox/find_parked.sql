-- Reads what was kept with the records of parked messages. By primary key. This transaction is the only writer.
select inbox.consumer, inbox.key, inbox.result
from json_each($1) as asked
cross join oncebox_inbox as inbox on inbox.consumer = asked.value ->> 0 and inbox.key = unhex(asked.value ->> 1)
where inbox.outcome = 4
