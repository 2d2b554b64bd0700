-- All consumers; there are few.
select id, name, horizon, checkpoint from oncebox_consumers order by name
