-- Whether that server process still runs. Where we may not see when it started, we must assume that it is the one.
select pid from pg_stat_activity
where pid = $1 and coalesce((extract(epoch from backend_start) * 1000000)::int8 = $2, true)
