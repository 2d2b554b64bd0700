-- Ends rows that were sent (primary key). One that is gone already was ended by us: the lane is ours.
delete from oncebox_outbox
where seq in (select value ->> 0 from json_each($1)) and +state in (0, 1)
