-- Reads the records of parked messages (primary key). This transaction is the only writer: nobody holds them.
select inbox.consumer, inbox.key
from json_each($1) as asked
cross join oncebox_inbox as inbox on inbox.consumer = asked.value ->> 0 and inbox.key = unhex(asked.value ->> 1)
where inbox.outcome = 4
