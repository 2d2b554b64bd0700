-- Takes back keys that were claimed in this transaction. By primary key.
delete from oncebox_inbox
where (consumer, key) in (select value ->> 0, unhex(value ->> 1) from json_each($1))
