-- Whether that server process still runs. It is one of this user's own, so that we can see when it started; a process whose
-- start is hidden from us is another user's, which has its pid by now.
select pid from pg_stat_activity
where pid = $1 and (extract(epoch from backend_start) * 1000000)::int8 = $2
