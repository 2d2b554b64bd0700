-- Locks the records of parked messages (primary key). One that is locked belongs to a runner that is just at work: it
-- is passed over, because that runner may wait for the row in `parked` that we hold.
select inbox.consumer, inbox.key
from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
join {schema}.inbox using (consumer, key)
where inbox.outcome = 4
order by inbox.consumer, inbox.key
for update of inbox skip locked
