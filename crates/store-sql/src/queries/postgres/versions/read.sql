-- How far these aggregates have come (primary key). Locks nothing. Those that are not there are not answered.
select asked.position - 1, version.version
from unnest($2::bytea[]) with ordinality as asked (aggregate, position)
join {schema}.versions as version on version.consumer = $1 and version.aggregate = asked.aggregate
