-- One row of the outbox (primary key), and none more than $1.
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from oncebox_outbox
where seq = $2
limit $1
