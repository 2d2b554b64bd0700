-- The tables that are there, also those that this role may not read.
select tablename::text from pg_catalog.pg_tables where schemaname = $1
