-- Removes rows that were locked before (primary key).
delete from {schema}.parked where id = any($1::int8[])
