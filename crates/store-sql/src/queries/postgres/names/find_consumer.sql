-- By the unique index on names.
select id from {schema}.consumers where name = $1
