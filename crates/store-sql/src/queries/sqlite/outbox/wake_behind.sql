-- Makes rows unsent that wait behind these (primary key, index oncebox_outbox_blocking): the next $1 of each topic and
-- order key. They may wait behind another still; whoever fetches them finds out. The rest is woken when these are sent.
with gone as materialized (
    select order_hash, topic, order_key, min(seq) as seq from oncebox_outbox
    where seq in (select value ->> 0 from json_each($2)) and order_hash is not null
        -- Mostly nothing waits at all; then these rows need not be read.
        and exists (select 1 from oncebox_outbox where state in (1, 2))
    group by order_hash, topic, order_key
),
reach as materialized (
    select gone.*, coalesce((
        select later.seq from oncebox_outbox as later
        where later.state in (1, 2) and +later.state = 1 and later.order_hash = gone.order_hash
            and later.seq > gone.seq and later.topic = gone.topic and later.order_key = gone.order_key
        order by later.seq
        limit 1 offset $1 - 1
    ), 9223372036854775807) as last
    from gone
)
update oncebox_outbox set state = 0
where seq in (
    select later.seq from reach
    cross join oncebox_outbox as later
        on later.state in (1, 2) and later.order_hash = reach.order_hash
            and later.seq > reach.seq and later.seq <= reach.last
    where +later.state = 1 and later.topic = reach.topic and later.order_key = reach.order_key
)
