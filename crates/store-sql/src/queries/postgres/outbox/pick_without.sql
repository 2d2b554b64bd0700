-- As `pick.sql`, leaving out topics: for each lane the topics that it has, one after the other, and for each of those that
-- are wanted its oldest rows (index outbox_by_topic, one look for each topic in each lane).
with recursive clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as materialized (
    select lanes.lane from {schema}.lanes
    join unnest($5::int4[], $6::int8[]) as asked (lane, epoch) using (lane, epoch)
    where lanes.queue = (select id from {schema}.queues where name = $2)
        and lanes.expires_at > (select now from clock)
),
topics (lane, topic_hash) as (
    select held.lane, (
        select outbox.topic_hash from {schema}.outbox
        where outbox.state = 0 and outbox.lane = held.lane
        order by outbox.topic_hash
        limit 1
    )
    from held
    union all
    select topics.lane, (
        select outbox.topic_hash from {schema}.outbox
        where outbox.state = 0 and outbox.lane = topics.lane and outbox.topic_hash > topics.topic_hash
        order by outbox.topic_hash
        limit 1
    )
    from topics
    where topics.topic_hash is not null
),
oldest as materialized (
    select topics.lane, topics.topic_hash, unsent.seq from topics
    cross join lateral (
        select outbox.seq from {schema}.outbox
        where outbox.state = 0 and outbox.lane = topics.lane and outbox.topic_hash = topics.topic_hash
        order by outbox.seq
        limit $4
    ) as unsent
    where topics.topic_hash <> all (array_remove($7::int8[], null))
),
seen as (
    select min(seq) as seq
    from (select max(seq) as seq from oldest group by lane, topic_hash having count(*) >= $4) as cut
)
select oldest.seq, oldest.lane from oldest cross join seen
where oldest.seq <= coalesce(seen.seq, oldest.seq)
order by oldest.seq
limit $3
