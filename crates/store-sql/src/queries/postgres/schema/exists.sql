-- Whether migrations were ever applied. Asked of the catalog, because a missing table would abort the transaction.
select 1 from pg_catalog.pg_tables where schemaname = $1 and tablename = 'migrations'
