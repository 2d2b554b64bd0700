-- How many rows of a queue wait, up to $3, for how many seconds the one does that was due first, and how many became due
-- in the last $4 microseconds, up to $3 (index queue_visible, which the order asks for: the planner would rather read a
-- table in which most rows are processed).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
named as (select id from {schema}.queues where name = $2)
select
    (
        select count(*) from (
            select from {schema}.queue
            where queue = (select id from named) and visible_at is not null
            order by visible_at
            limit $3
        ) as waiting
    ),
    (
        select greatest((select now from clock) - received_at, 0) / 1000000 from {schema}.queue
        where queue = (select id from named) and visible_at <= (select now from clock)
        order by visible_at, id
        limit 1
    ),
    (
        select count(*) from (
            select from {schema}.queue
            where queue = (select id from named) and visible_at > (select now from clock) - $4::int8
                and visible_at <= (select now from clock)
            order by visible_at
            limit $3
        ) as arrived
    )
from named
