-- Locks the records of these aggregates in the order asked for (primary key). Those that are not there are not answered.
select asked.position - 1, version.version
from unnest($2::bytea[]) with ordinality as asked (aggregate, position)
join {schema}.versions as version on version.consumer = $1 and version.aggregate = asked.aggregate
order by asked.position
for update of version
