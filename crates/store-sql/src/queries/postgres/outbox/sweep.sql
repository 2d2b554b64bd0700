-- Removes rows that were sent long ago, a bounded number at a time (index outbox_sent, then the primary key: an array, so
-- that no plan reads the table). Rows that another sweep has in hand are passed over.
delete from {schema}.outbox
where state = 3 and seq = any (array(
    select seq from {schema}.outbox
    where state = 3 and settled_at < $1
    order by settled_at
    limit $2
    for update skip locked
))
