-- What the commit of that server process waits for, if it is a standby. The process is one of this user's own, so that
-- its wait can be seen without any privilege.
select current_setting('synchronous_standby_names') from pg_stat_activity
where pid = $1 and (extract(epoch from backend_start) * 1000000)::int8 = $2 and wait_event = 'SyncRep'
