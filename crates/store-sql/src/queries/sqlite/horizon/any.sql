-- A record of a consumer, if there is any (primary key).
select 1 from oncebox_inbox where consumer = $1 limit 1
