-- Moves logs on from where they are (primary key). Fewer than asked for: one has a new owner, or is elsewhere.
update {schema}.offsets as held set next = asked.next, witness = asked.witness
from unnest($2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) as asked (log, epoch, came, next, witness)
where held.consumer = $1 and held.log = asked.log and held.epoch = asked.epoch and held.next = asked.came
