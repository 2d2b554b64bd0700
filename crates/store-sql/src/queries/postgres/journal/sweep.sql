-- Removes entries of one consumer from before a time, the oldest first, a bounded number at a time (primary key). What
-- another sweep has in hand is passed over.
delete from {schema}.journal
where ctid = any (array(
    select ctid from {schema}.journal
    where consumer = $1 and at < $2
    order by at
    limit $3
    for update skip locked
))
