-- Adds records of aggregates that have none (primary key).
insert into oncebox_versions (consumer, aggregate)
select $1, unhex(value ->> 0) from json_each($2)
where true
on conflict (consumer, aggregate) do update set version = version
returning aggregate, version
