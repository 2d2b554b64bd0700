-- All consumers; there are few.
select id, name, horizon, checkpoint, identity from oncebox_consumers order by name
