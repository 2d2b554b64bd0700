-- Reads unsent rows (primary key), each with whether one before it of its topic and order key is set aside or waits
-- (index outbox_blocking). Of those that are behind nobody needs the payload. The addition of nothing keeps the planner off
-- the index of unsent rows: it would read all of it.
select
    outbox.seq, behind.waits, outbox.topic, outbox.order_key, outbox.message_id, outbox.source, outbox.kind,
    outbox.version, outbox.headers, case behind.waits when 0 then outbox.payload else '' end,
    outbox.made_at, outbox.made_at_nanos
from {schema}.outbox
cross join lateral (
    select case when outbox.order_hash is not null and exists (
        select from {schema}.outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = outbox.order_hash and earlier.seq < outbox.seq
            and earlier.topic = outbox.topic and earlier.order_key = outbox.order_key
    ) then 1 else 0 end as waits
    offset 0
) as behind
where outbox.seq = any($1::int8[]) and outbox.state + 0 = 0
order by outbox.seq
