-- Says where logs begin that have come nowhere yet (primary key). Fewer than asked for: one has a new owner, or an offset.
-- The sum makes the planner look each one up, instead of reading all logs of the consumer.
update oncebox_offsets set next = asked.value ->> 2
from json_each($2) as asked
where oncebox_offsets.consumer = $1 + 0 * asked.key and oncebox_offsets.log = unhex(asked.value ->> 0)
    and epoch = asked.value ->> 1 and next is null
