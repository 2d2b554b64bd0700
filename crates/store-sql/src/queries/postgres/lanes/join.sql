-- Counts us among the members of a queue for another lease (primary key).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.members (queue, owner, expires_at)
select $2::int2, $3::bytea, now + $4::int8 from clock
on conflict (queue, owner) do update set expires_at = excluded.expires_at
