-- Removes blocks that are old as a whole, a bounded number at a time, the first that were written first (primary key).
-- Blocks that another sweep has in hand are passed over.
delete from {schema}.archive
where consumer = $1 and id = any (array(
    select id from {schema}.archive
    where consumer = $1 and last_at < $2
    order by id
    limit $3
    for update skip locked
))
