-- Removes rows that are set aside (primary key; the addition of nothing keeps the planner to it).
delete from {schema}.outbox where seq = any($1::int8[]) and state + 0 = 2
returning seq
