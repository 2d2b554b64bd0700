-- Counts us among the members of a queue for another lease (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_members (queue, owner, expires_at)
select $2, $3, now + $4 from clock
where true
on conflict (queue, owner) do update set expires_at = excluded.expires_at
