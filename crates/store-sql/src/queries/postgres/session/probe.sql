-- Who this connection is, and what its server promises.
select
    pg_backend_pid(),
    (select (extract(epoch from backend_start) * 1000000)::int8 from pg_stat_activity where pid = pg_backend_pid()),
    current_setting('synchronous_commit'),
    current_setting('fsync'),
    pg_is_in_recovery(),
    current_setting('server_version_num')::int8
