-- By the unique index on names.
select id from oncebox_consumers where name = $1
