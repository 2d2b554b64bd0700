-- Lanes (primary key) in which nobody is just settling rows or taking them out of what is set aside; nobody can begin
-- to before this transaction has ended. Never waits.
select lane from {schema}.lanes
where queue = (select id from {schema}.queues where name = $1) and lane = any($2::int4[])
order by lane
for update skip locked
