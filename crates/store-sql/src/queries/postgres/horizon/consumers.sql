-- All consumers; there are few.
select id, name, horizon, checkpoint, identity from {schema}.consumers order by name
