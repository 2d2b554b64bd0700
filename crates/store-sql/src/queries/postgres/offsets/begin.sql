-- Says where logs begin that have come nowhere yet (primary key). Fewer than asked for: one has a new owner, or an offset.
update {schema}.offsets as held set next = asked.next
from unnest($2::bytea[], $3::int8[], $4::int8[]) as asked (log, epoch, next)
where held.consumer = $1 and held.log = asked.log and held.epoch = asked.epoch and held.next is null
