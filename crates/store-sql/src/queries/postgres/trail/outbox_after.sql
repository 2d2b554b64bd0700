-- Rows of the outbox that are not sent, oldest first, by primary key.
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from {schema}.outbox
where seq > $2 and state <> 3
order by seq
limit $1
