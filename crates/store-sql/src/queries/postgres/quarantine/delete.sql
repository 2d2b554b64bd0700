-- Removes rows that were locked before (primary key). Returns the place of each in its order key, if it held anybody up.
delete from {schema}.parked where id = any($1::int8[])
returning id, consumer, case when state <> 2 then order_hash end, order_key
