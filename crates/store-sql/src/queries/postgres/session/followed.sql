-- Whether a standby follows the server that commits wait for. What kind it is, is hidden from most users; that it is there
-- is not.
select exists (select from pg_stat_replication where sync_state in ('sync', 'quorum') or sync_state is null)
