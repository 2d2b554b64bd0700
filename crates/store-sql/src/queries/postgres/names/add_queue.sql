-- Gives a new name the next id. Two processes that choose the same id, or the same name, meet in a unique index: one of
-- them adds nothing and tries again.
insert into {schema}.queues (id, name)
select coalesce(max(id), 0) + 1, $1 from {schema}.queues
on conflict do nothing
