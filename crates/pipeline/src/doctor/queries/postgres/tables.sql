-- Live and dead rows of tables, by the server's own estimates. $1: the schema of Oncebox's tables, $2: which of them.
select relname::text, n_live_tup, n_dead_tup from pg_stat_user_tables
where schemaname = $1 and relname = any($2)
order by relname
