-- Logs under these epochs (primary key, one look for each: a cross join keeps its order). The transaction is the only one
-- that writes: nothing needs a lock. Those that have a new owner are not answered.
select asked.key, held.next
from json_each($2) as asked
cross join oncebox_offsets as held
    on held.consumer = $1 and held.log = unhex(asked.value ->> 0) and held.epoch = asked.value ->> 1
