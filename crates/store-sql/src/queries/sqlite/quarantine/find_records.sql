-- What the inbox remembers under these keys, in the consumer's own records and in those that consumers share. By
-- primary key.
select asked.key, inbox.consumer, inbox.fingerprint, inbox.scheme, inbox.outcome,
    case inbox.outcome when 4 then inbox.result end
from json_each($2) as asked
cross join oncebox_inbox as inbox on inbox.consumer in ($1, 0) and inbox.key = unhex(asked.value ->> 0)
