-- Locks the records of parked messages and reads what was kept with them. By primary key, and locked in the order of
-- the keys, so that two batches wait for each other instead of deadlocking. A record that another transaction holds is
-- waited for and then looked at again: one that was applied meanwhile is left out.
select inbox.consumer, inbox.key, inbox.result
from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
join {schema}.inbox using (consumer, key)
where inbox.outcome = 4
order by inbox.consumer, inbox.key
for no key update of inbox
