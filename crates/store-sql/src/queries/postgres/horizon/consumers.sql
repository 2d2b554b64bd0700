-- All consumers; there are few.
select id, name, horizon from {schema}.consumers order by name
