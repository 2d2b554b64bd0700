-- One horizon (primary key).
select horizon from oncebox_consumers where id = $1
