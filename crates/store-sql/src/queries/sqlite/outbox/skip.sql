-- Removes rows that are set aside (primary key).
delete from oncebox_outbox where seq in (select value ->> 0 from json_each($1)) and +state = 2
returning seq
