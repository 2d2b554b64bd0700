-- What a handler emitted, by the header that names its cause. No index leads there: the newest rows are looked at, by
-- primary key.
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from (select * from {schema}.outbox order by seq desc limit $3) as newest
where headers is not null and position($2 in headers) > 0
order by seq
limit $1
