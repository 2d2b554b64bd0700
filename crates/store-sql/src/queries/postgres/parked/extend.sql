-- Keeps rows that are still ours in hand for another lease (primary key). Rows with a new owner are left alone, and
-- rows that are locked are passed over: they are just being ended, and waiting for them could deadlock.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
ours as (
    select parked.id from {schema}.parked
    join unnest($3::int8[], $4::int4[]) as receipt (id, fence) using (id, fence)
    where parked.due_at is not null
    for update of parked skip locked
)
update {schema}.parked set due_at = (select now from clock) + $2::int8
from ours
where parked.id = ours.id
