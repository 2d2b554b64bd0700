-- Adds records of aggregates that have none, or waits for whoever adds them and locks theirs (primary key).
insert into {schema}.versions as version (consumer, aggregate)
select $1, asked.aggregate from unnest($2::bytea[]) with ordinality as asked (aggregate, position) order by asked.position
on conflict (consumer, aggregate) do update set version = version.version
returning aggregate, version
