-- The lanes of the outbox in which rows wait: how many, up to $2 in each, for how many seconds the oldest does, and whether
-- a relay holds the lane (index outbox_unsent, two looks for each of $3 lanes).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select
    number.lane,
    least(counted.unsent, $2::int8),
    (counted.unsent > $2::int8)::int4,
    greatest((select now from clock) - oldest.emitted_at, 0) / 1000000,
    exists (
        select from {schema}.lanes
        where lanes.queue = (select id from {schema}.queues where name = $4) and lanes.lane = number.lane
            and lanes.owner is not null and lanes.expires_at > (select now from clock)
    )::int4
from generate_series(0, $3::int4 - 1) as number (lane)
cross join lateral (
    select emitted_at from {schema}.outbox where state = 0 and outbox.lane = number.lane order by seq limit 1
) as oldest
cross join lateral (
    select count(*) as unsent
    from (select from {schema}.outbox where state = 0 and outbox.lane = number.lane order by seq limit $2 + 1) as waiting
) as counted
order by number.lane
