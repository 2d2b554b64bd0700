-- Ends one server process, and never another one that has its pid by now. Not while it waits for a standby: that would
-- make its commit count on this server alone.
select pg_terminate_backend(pid) from pg_stat_activity
where pid = $1 and (extract(epoch from backend_start) * 1000000)::int8 = $2 and wait_event is distinct from 'SyncRep'
