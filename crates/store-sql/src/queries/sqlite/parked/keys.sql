-- What rows are found under, with what they say (primary key). Asked before they are ended by a transaction that found a record which says that
-- its message is parked.
select key, fingerprint, scheme from oncebox_parked where id in (select value ->> 0 from json_each($1))
