-- How many rows are unsent, wait and are set aside, each up to $1, and when the oldest of the first two was added (indexes
-- oncebox_outbox_unsent and oncebox_outbox_held_back). The lanes, $2, lie together.
select
    (select count(*) from (select 1 from oncebox_outbox where state = 0 limit $1)),
    (select count(*) from (select 1 from oncebox_outbox where state in (1, 2) and state = 1 limit $1)),
    (select count(*) from (select 1 from oncebox_outbox where state in (1, 2) and state = 2 limit $1)),
    (
        select emitted_at from oncebox_outbox
        where $2 > 0 and seq = (
            select min(seq) from (
                select min(seq) as seq from oncebox_outbox indexed by oncebox_outbox_unsent where state = 0
                union all
                select min(seq) from oncebox_outbox where state in (1, 2) and state = 1
            )
        )
    )
