-- Sets rows aside that stand behind an earlier one of their order key (primary key). It is the only writer: nothing has
-- changed since they were found.
update oncebox_parked set behind = 1
where id in (select value ->> 0 from json_each($1))
