-- Writes to the log where commits wait for a standby. A commit that wrote nothing waits for nothing; what this transaction
-- has found may be the commit of another one that no standby has. As a number: a place in the log has a form of its own,
-- which nobody here reads.
select (pg_logical_emit_message(true, 'oncebox', '') is not null)::int4
where current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('local', 'off')
