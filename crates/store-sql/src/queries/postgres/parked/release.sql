-- Gives back rows that are still ours, due after a delay (primary key). The fence is raised: a late extension of the
-- lease must not hide the row. It starts again from 0 where the next one would not fit 4 bytes; only its being equal counts.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked set fence = (parked.fence / 1024 + 1) % 2097152 * 1024, behind = 0,
    due_at = (select now from clock) + $2::int8
from unnest($3::int8[], $4::int4[]) as receipt (id, fence)
where parked.id = receipt.id and parked.fence = receipt.fence and parked.due_at is not null
