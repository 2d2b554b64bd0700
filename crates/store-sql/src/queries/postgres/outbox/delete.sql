-- Ends rows that were sent (primary key). One that is gone already was ended by us: the lane is ours.
-- The addition of nothing keeps the planner to it.
delete from {schema}.outbox where seq = any($1::int8[]) and state + 0 in (0, 1)
