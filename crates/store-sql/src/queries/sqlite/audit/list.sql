-- The newest entries before one (primary key, backwards).
select id, at, consumer, replay, messages, verb, who, why, detail
from oncebox_audit
where id < $1
order by id desc
limit $2
