-- How many seconds the oldest transaction of this database is open; how many of its sessions do not show that, because they
-- are another user's; and for how many seconds a transaction has been prepared that nobody ended. Sessions of other
-- users have neither a type nor a start for those who may not see them.
select
    coalesce(max(extract(epoch from clock_timestamp() - xact_start)) filter (where backend_type = 'client backend'), 0)::int8,
    count(*) filter (where usesysid is not null and backend_type is null),
    coalesce((
        select max(extract(epoch from clock_timestamp() - prepared)) from pg_prepared_xacts
        where database = current_database()
    ), 0)::int8
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
