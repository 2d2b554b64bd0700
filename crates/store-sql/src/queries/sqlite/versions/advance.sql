-- Notes how far aggregates have come (primary key).
update oncebox_versions set version = asked.value ->> 1
from json_each($2) as asked
where oncebox_versions.consumer = $1 and oncebox_versions.aggregate = unhex(asked.value ->> 0)
