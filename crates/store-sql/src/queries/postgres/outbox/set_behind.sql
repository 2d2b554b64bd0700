-- Notes that rows wait behind one of their topic and order key that is set aside or waits (primary key, and one look into
-- outbox_blocking for each, whatever the planner believes), as this statement sees it, which begins with their lanes
-- kept. Those that somebody holds are passed over. The addition of nothing keeps the planner off the index of unsent rows.
update {schema}.outbox set state = 1
from (
    select later.seq from {schema}.outbox as later
    cross join lateral (
        select from {schema}.outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = later.order_hash and earlier.seq < later.seq
            and earlier.topic = later.topic and earlier.order_key = later.order_key
        order by earlier.order_hash, earlier.seq
        limit 1
    ) as blocking
    where later.seq = any($1::int8[]) and later.state + 0 = 0
    for update of later skip locked
) as behind
where outbox.seq = behind.seq
