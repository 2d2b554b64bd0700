-- Notes how far aggregates have come (primary key).
update {schema}.versions as version set version = asked.version
from unnest($2::bytea[], $3::int8[]) as asked (aggregate, version)
where version.consumer = $1 and version.aggregate = asked.aggregate
