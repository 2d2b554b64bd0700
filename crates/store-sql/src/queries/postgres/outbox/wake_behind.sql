-- Makes rows unsent that wait behind these (primary key, index outbox_blocking): the next $1 of each topic and order key.
-- They may wait behind another still; whoever fetches them finds out. The rest is woken when these are sent. The
-- addition of nothing keeps the planner to the primary key.
update {schema}.outbox set state = 0
from (
    select waiting.seq from (
        select order_hash, topic, order_key, min(seq) as seq from {schema}.outbox
        where seq = any($2::int8[]) and order_hash is not null
            -- Mostly nothing waits at all; then these rows need not be read.
            and (select seq from {schema}.outbox where state in (1, 2) order by state, seq limit 1) is not null
        group by order_hash, topic, order_key
    ) as gone
    cross join lateral (
        select later.seq from {schema}.outbox as later
        where later.state = 1 and later.order_hash = gone.order_hash and later.seq > gone.seq
            and later.topic = gone.topic and later.order_key = gone.order_key
        order by later.seq
        limit $1
        for update
    ) as waiting
) as woken
where outbox.seq = woken.seq and outbox.state + 0 = 1
