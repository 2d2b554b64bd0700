-- Turns records of parked messages into records of rejected ones (primary key).
update oncebox_inbox set outcome = 1, result = $1
from json_each($2) as asked
where oncebox_inbox.consumer = asked.value ->> 0 and oncebox_inbox.key = unhex(asked.value ->> 1)
    and oncebox_inbox.outcome = 4
