-- Notes that rows wait behind one of their topic and order key (primary key). It is the only writer: nothing has changed
-- since they were read.
update oncebox_outbox set state = 1
where seq in (select value ->> 0 from json_each($1)) and +state = 0
