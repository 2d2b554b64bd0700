-- The records of these aggregates (primary key, one look for each: a cross join keeps its order). The transaction is the
-- only one that writes: nothing needs a lock.
select asked.key, version.version
from json_each($2) as asked
cross join oncebox_versions as version on version.consumer = $1 and version.aggregate = unhex(asked.value ->> 0)
