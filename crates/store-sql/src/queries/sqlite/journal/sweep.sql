-- Removes entries of one consumer from before a time, the oldest first, a bounded number at a time (index
-- oncebox_journal_age, then the primary key).
delete from oncebox_journal
where id in (
    select id from oncebox_journal
    where consumer = $1 and at < $2
    order by at
    limit $3
)
