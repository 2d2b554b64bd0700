-- What rows are found under (primary key). Asked before they are ended by a transaction that found a record which says that
-- its message is parked.
select key from oncebox_parked where id in (select value ->> 0 from json_each($1))
