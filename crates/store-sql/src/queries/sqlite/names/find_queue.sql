-- By the unique index on names.
select id, lanes from oncebox_queues where name = $1
