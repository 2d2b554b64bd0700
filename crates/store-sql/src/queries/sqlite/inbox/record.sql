-- Replaces the outcomes of keys that were claimed in this transaction. By primary key.
update oncebox_inbox
set outcome = done.value ->> 2, result = unhex(done.value ->> 3)
from json_each($1) as done
where oncebox_inbox.consumer = done.value ->> 0 and oncebox_inbox.key = unhex(done.value ->> 1)
