-- Removes rows (primary key). Returns the place of each in its order key, if it held anybody up.
delete from oncebox_parked where id in (select value ->> 0 from json_each($1))
returning id, consumer, case when state <> 2 then order_hash end, order_key
