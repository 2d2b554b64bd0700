-- How many rows of a queue wait, up to $3, for how many seconds the one does that was due first, and how many became due
-- in the last $4 microseconds, up to $3 (index oncebox_queue_visible).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
named as materialized (select id from oncebox_queues where name = $2)
select
    (
        select count(*) from (
            select 1 from oncebox_queue indexed by oncebox_queue_visible
            where queue = (select id from named) and visible_at is not null
            limit $3
        )
    ),
    (
        select max((select now from clock) - received_at, 0) / 1000000
        from oncebox_queue indexed by oncebox_queue_visible
        where queue = (select id from named) and visible_at <= (select now from clock)
        order by visible_at, id
        limit 1
    ),
    (
        select count(*) from (
            select 1 from oncebox_queue indexed by oncebox_queue_visible
            where queue = (select id from named) and visible_at > (select now from clock) - $4
                and visible_at <= (select now from clock)
            limit $3
        )
    )
from named
