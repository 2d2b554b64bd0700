-- Forgets starts. The single columns are there for the planner, which finds its way into the primary key by them and
-- not by the pair.
delete from oncebox_starts
where consumer in (select value ->> 0 from json_each($1)) and key in (select unhex(value ->> 1) from json_each($1))
    and (consumer, key) in (select value ->> 0, unhex(value ->> 1) from json_each($1))
