-- The indexes of a schema that work.
select index_class.relname::text from pg_index
join pg_class as index_class on index_class.oid = pg_index.indexrelid
join pg_namespace on pg_namespace.oid = index_class.relnamespace
where pg_namespace.nspname = $1 and pg_index.indisvalid
