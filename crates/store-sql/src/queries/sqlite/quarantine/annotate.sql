-- Sets the note of rows (primary key). Returns those that are there.
update oncebox_parked set note = $1 where id in (select value ->> 0 from json_each($2))
returning id
