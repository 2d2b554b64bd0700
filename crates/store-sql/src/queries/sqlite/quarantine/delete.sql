-- Removes rows (primary key).
delete from oncebox_parked where id in (select value ->> 0 from json_each($1))
