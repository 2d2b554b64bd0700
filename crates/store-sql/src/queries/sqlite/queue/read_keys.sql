-- Reads the messages that are there under these keys (unique index oncebox_queue_once).
select key, fingerprint, scheme
from oncebox_queue
where queue = $1 and key in (select unhex(value ->> 0) from json_each($2))
