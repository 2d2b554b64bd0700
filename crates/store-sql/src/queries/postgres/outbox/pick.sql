-- The oldest unsent rows of lanes that are held: up to $4 of each lane (index outbox_unsent, one look for each lane), and
-- up to $3 of all. Where a lane may have more than it was asked for, nothing is returned that is younger than what was
-- seen of it: so the answer is the oldest of all, though there may be more. Locks nothing.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as materialized (
    select lanes.lane from {schema}.lanes
    join unnest($5::int4[], $6::int8[]) as asked (lane, epoch) using (lane, epoch)
    where lanes.queue = (select id from {schema}.queues where name = $2)
        and lanes.expires_at > (select now from clock)
),
oldest as materialized (
    select held.lane, unsent.seq from held
    cross join lateral (
        select outbox.seq from {schema}.outbox
        where outbox.state = 0 and outbox.lane = held.lane
        order by outbox.seq
        limit $4
    ) as unsent
),
seen as (
    select min(seq) as seq from (select max(seq) as seq from oldest group by lane having count(*) >= $4) as cut
)
select oldest.seq, oldest.lane from oldest cross join seen
where oldest.seq <= coalesce(seen.seq, oldest.seq)
order by oldest.seq
limit $3
