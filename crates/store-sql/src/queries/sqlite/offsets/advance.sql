-- Moves logs on from where they are (primary key). Fewer than asked for: one has a new owner, or is elsewhere. The sum
-- makes the planner look each one up, instead of reading all logs of the consumer.
update oncebox_offsets set next = asked.value ->> 3, witness = asked.value ->> 4
from json_each($2) as asked
where oncebox_offsets.consumer = $1 + 0 * asked.key and oncebox_offsets.log = unhex(asked.value ->> 0)
    and epoch = asked.value ->> 1 and next = asked.value ->> 2
