-- The oldest unsent rows of lanes that are held: up to $4 of each lane, after the row that is named for it (index
-- outbox_unsent, one look for each lane), and of those the oldest, up to $3. Of each lane it is the beginning, so nothing is
-- overtaken. Locks nothing.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as materialized (
    select lanes.lane, asked.after from {schema}.lanes
    join unnest($5::int4[], $6::int8[], $7::int8[]) as asked (lane, epoch, after) using (lane, epoch)
    where lanes.queue = (select id from {schema}.queues where name = $2)
        and lanes.expires_at > (select now from clock)
)
select unsent.seq, held.lane from held
cross join lateral (
    select outbox.seq from {schema}.outbox
    where outbox.state = 0 and outbox.lane = held.lane and outbox.seq > held.after
    order by outbox.seq
    limit $4
) as unsent
order by unsent.seq
limit $3
