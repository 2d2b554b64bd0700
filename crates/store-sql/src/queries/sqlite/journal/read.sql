-- The newest entries under these keys, or of this id, whoever's they are or of one consumer (indexes oncebox_journal_key
-- and oncebox_journal_id).
select at, consumer, key, process, ended, cause, attempt, was_parked, handler_millis, coordinate
from (
    select * from oncebox_journal
    where key in (select unhex(value ->> 0) from json_each($4)) and ($2 is null or consumer = $2)
    union
    select * from oncebox_journal
    where id_hash = $3 and ($2 is null or consumer = $2)
)
order by at desc, id desc
limit $1
