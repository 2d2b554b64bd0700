-- Notes how far aggregates have come (primary key). The sum makes the planner look each one up, instead of reading all
-- aggregates of the consumer and comparing.
update oncebox_versions set version = asked.value ->> 1
from json_each($2) as asked
where oncebox_versions.consumer = $1 + 0 * asked.key and oncebox_versions.aggregate = unhex(asked.value ->> 0)
