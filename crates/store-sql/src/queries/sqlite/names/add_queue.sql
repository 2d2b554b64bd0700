-- Gives a new name the next id.
insert into oncebox_queues (id, name)
select coalesce(max(id), 0) + 1, $1 from oncebox_queues
where true
on conflict do nothing
