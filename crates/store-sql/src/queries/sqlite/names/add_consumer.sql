-- Gives a new name the next id.
insert into oncebox_consumers (id, name)
select coalesce(max(id), 0) + 1, $1 from oncebox_consumers
where true
on conflict do nothing
