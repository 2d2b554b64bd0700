-- The lanes of the outbox in which rows wait, as far as the oldest $2 * 10 rows tell: how many, for how many seconds the
-- oldest does, and whether a relay holds the lane (index oncebox_outbox_unsent; the lanes, $3, lie together in it).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
oldest as materialized (
    select lane, seq from oncebox_outbox indexed by oncebox_outbox_unsent
    where state = 0 and $3 > 0
    order by seq
    limit $2 * 10 + 1
),
counted as (select lane, count(*) as unsent, min(seq) as first from oldest group by lane)
select
    counted.lane,
    counted.unsent,
    (select count(*) from oldest) > $2 * 10,
    max((select now from clock) - (select emitted_at from oncebox_outbox where seq = counted.first), 0) / 1000000,
    exists (
        select 1 from oncebox_lanes as lanes
        where lanes.queue = (select id from oncebox_queues where name = $4) and lanes.lane = counted.lane
            and lanes.owner is not null and lanes.expires_at > (select now from clock)
    )
from counted
order by counted.lane
