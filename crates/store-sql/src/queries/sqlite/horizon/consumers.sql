-- All consumers; there are few.
select id, name, horizon from oncebox_consumers order by name
