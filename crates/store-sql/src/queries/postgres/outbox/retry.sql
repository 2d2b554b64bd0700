-- Makes rows that are set aside unsent again (primary key; the addition of nothing keeps the planner to it).
update {schema}.outbox set state = 0, settled_at = null, reason = null
where seq = any($1::int8[]) and state + 0 = 2
returning seq
