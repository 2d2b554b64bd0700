-- Turns records of parked messages into claims, as if they were made now. By primary key.
update oncebox_inbox
set outcome = 0, result = null, processed_at = cast(unixepoch('subsec') * 1000000 as integer)
from json_each($1) as parked
where oncebox_inbox.consumer = parked.value ->> 0 and oncebox_inbox.key = unhex(parked.value ->> 1)
    and oncebox_inbox.outcome = 4
