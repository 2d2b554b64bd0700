-- One horizon (primary key).
select horizon from {schema}.consumers where id = $1
