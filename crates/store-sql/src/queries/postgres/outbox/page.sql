-- Rows that are set aside, oldest first (index outbox_held_back).
select
    seq, topic, reason, settled_at, order_key, message_id, source, kind, version, headers, payload, made_at,
    made_at_nanos
from {schema}.outbox
where state = 2 and seq > $1
order by seq
limit $2
