-- Which standbys commits wait for, how many follow without being waited for, and how many do not show which they are. Whoever
-- reads changes by a logical slot, or takes a backup, does not take over.
select current_setting('synchronous_standby_names'), count(*) filter (where sync_state = 'async' and state <> 'backup'),
    count(*) filter (where sync_state is null)
from pg_stat_replication
where pid not in (
    select active_pid from pg_replication_slots where slot_type = 'logical' and active_pid is not null
)
