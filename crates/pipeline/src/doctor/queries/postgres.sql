-- What the checks of PostgreSQL look at: settings, the inbox's dead rows, the longest transaction of this database.
-- $1: the schema of Oncebox's tables.
select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
    coalesce((select n_live_tup from pg_stat_user_tables where schemaname = $1 and relname = 'inbox'), 0),
    coalesce((select n_dead_tup from pg_stat_user_tables where schemaname = $1 and relname = 'inbox'), 0),
    coalesce((
        select max(extract(epoch from clock_timestamp() - xact_start))::int8 from pg_stat_activity
        where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
            and backend_type = 'client backend'
    ), 0)
