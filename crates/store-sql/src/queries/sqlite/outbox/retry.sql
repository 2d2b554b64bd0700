-- Makes rows that are set aside unsent again (primary key).
update oncebox_outbox set state = 0, settled_at = null, reason = null
where seq in (select value ->> 0 from json_each($1)) and +state = 2
returning seq
