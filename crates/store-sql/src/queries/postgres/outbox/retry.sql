-- Makes rows that are set aside unsent again (primary key).
update {schema}.outbox set state = 0, settled_at = null, reason = null
where seq = any($1::int8[]) and state = 2
returning seq
