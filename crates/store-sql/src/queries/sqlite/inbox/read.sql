-- Reads the records of keys that could not be claimed. By primary key.
select inbox.consumer, inbox.key, inbox.fingerprint, inbox.scheme, inbox.outcome, inbox.result, inbox.id_hash
from json_each($1) as asked
cross join oncebox_inbox as inbox on inbox.consumer = asked.value ->> 0 and inbox.key = unhex(asked.value ->> 1)
