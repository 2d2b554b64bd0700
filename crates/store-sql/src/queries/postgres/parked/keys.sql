-- What rows are found under, with what they say (primary key). Asked before they are ended by a transaction that found a record which says that
-- its message is parked.
select key, fingerprint, scheme from {schema}.parked where id = any($1::int8[])
