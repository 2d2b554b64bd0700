-- Removes blocks that are old as a whole, a bounded number at a time, the first that were written first (index
-- oncebox_archive_consumer, then the primary key).
delete from oncebox_archive
where id in (
    select id from oncebox_archive
    where consumer = $1 and last_at < $2
    order by id
    limit $3
)
