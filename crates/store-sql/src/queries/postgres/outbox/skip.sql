-- Removes rows that are set aside (primary key).
delete from {schema}.outbox where seq = any($1::int8[]) and state = 2
returning seq
