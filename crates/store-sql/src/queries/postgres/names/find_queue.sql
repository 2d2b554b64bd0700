-- By the unique index on names. Locked, because its lanes may be about to change.
select id, lanes from {schema}.queues where name = $1 for no key update
