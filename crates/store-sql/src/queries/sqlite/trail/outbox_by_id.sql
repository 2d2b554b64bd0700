-- The messages with this id: what is not sent by its key (unique index oncebox_outbox_once), and of what was sent and kept the
-- newest rows, by primary key.
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload) from oncebox_outbox where state <> 3 and key = $2
union all
select * from (
    select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
    from (select * from oncebox_outbox order by seq desc limit $4) as newest
    where state = 3 and message_id = $3
) as sent
order by seq
limit $1
