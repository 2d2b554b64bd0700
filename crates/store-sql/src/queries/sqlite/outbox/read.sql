-- Reads unsent rows (primary key), each with whether one before it of its topic and order key is set aside or waits
-- (index oncebox_outbox_blocking).
select
    outbox.seq,
    outbox.order_hash is not null and exists (
        select 1 from oncebox_outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = outbox.order_hash and earlier.seq < outbox.seq
            and earlier.topic = outbox.topic and earlier.order_key = outbox.order_key
    ),
    outbox.topic, outbox.order_key, outbox.message_id, outbox.source, outbox.kind, outbox.version, outbox.headers,
    outbox.payload, outbox.made_at, outbox.made_at_nanos
from oncebox_outbox as outbox
where outbox.seq in (select value ->> 0 from json_each($1)) and +outbox.state = 0
order by outbox.seq
