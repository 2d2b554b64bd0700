-- All consumers; there are few.
select id, name, horizon, checkpoint from {schema}.consumers order by name
