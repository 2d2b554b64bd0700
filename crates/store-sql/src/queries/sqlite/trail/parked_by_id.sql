-- What is parked with this id. No index leads there: the newest rows are looked at, by primary key.
select id
from (select id, message_id from oncebox_parked order by id desc limit $3)
where message_id = $2
order by id
limit $1
