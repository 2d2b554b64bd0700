-- Locks logs under these epochs, in the order asked for (primary key). Those that have a new owner are not answered, also
-- if he has taken them while this waited.
select asked.position - 1, held.next
from unnest($2::bytea[], $3::int8[]) with ordinality as asked (log, epoch, position)
join {schema}.offsets as held on held.consumer = $1 and held.log = asked.log and held.epoch = asked.epoch
order by asked.position
for update of held
