-- As `pick.sql`, leaving out topics: for each lane the topics that it has, one after the other, and for each of those that
-- are wanted its oldest rows (index outbox_by_topic, one look for each topic in each lane).
with recursive clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as materialized (
    select lanes.lane, asked.after from {schema}.lanes
    join unnest($5::int4[], $6::int8[], $7::int8[]) as asked (lane, epoch, after) using (lane, epoch)
    where lanes.queue = (select id from {schema}.queues where name = $2)
        and lanes.expires_at > (select now from clock)
),
topics (lane, after, topic_hash) as (
    select held.lane, held.after, (
        select outbox.topic_hash from {schema}.outbox
        where outbox.state = 0 and outbox.lane = held.lane
        order by outbox.topic_hash
        limit 1
    )
    from held
    union all
    select topics.lane, topics.after, (
        select outbox.topic_hash from {schema}.outbox
        where outbox.state = 0 and outbox.lane = topics.lane and outbox.topic_hash > topics.topic_hash
        order by outbox.topic_hash
        limit 1
    )
    from topics
    where topics.topic_hash is not null
)
select unsent.seq, topics.lane from topics
cross join lateral (
    select outbox.seq from {schema}.outbox
    where outbox.state = 0 and outbox.lane = topics.lane and outbox.topic_hash = topics.topic_hash
        and outbox.seq > topics.after
    order by outbox.seq
    limit $4
) as unsent
where topics.topic_hash <> all (array_remove($8::int8[], null))
order by unsent.seq
limit $3
