-- Removes rows that were sent long ago, a bounded number at a time (index oncebox_outbox_sent, then the primary key).
delete from oncebox_outbox
where +state = 3 and seq in (
    select seq from oncebox_outbox
    where state = 3 and settled_at < $1
    order by settled_at
    limit $2
)
