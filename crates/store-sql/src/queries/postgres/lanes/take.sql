-- Takes free lanes, under a new epoch that fences off whoever had them before. A lane in which a settlement is just
-- committing is locked and passed over.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
free as (
    select lane from {schema}.lanes
    where queue = $2 and (owner is null or expires_at <= (select now from clock)) and lane <> all ($6::int4[])
    order by lane
    limit $5
    for update skip locked
)
update {schema}.lanes set owner = $3, epoch = lanes.epoch + 1, expires_at = (select now from clock) + $4::int8
from free
where lanes.queue = $2 and lanes.lane = free.lane
returning lanes.lane, lanes.epoch
