-- How many rows are unsent, wait and are set aside, each up to $1, and when the oldest of the first two was added (indexes
-- outbox_unsent, one look for each of $2 lanes, and outbox_held_back).
select
    (select count(*) from (select from {schema}.outbox where state = 0 limit $1) as unsent),
    (select count(*) from (select from {schema}.outbox where state = 1 limit $1) as waiting),
    (select count(*) from (select from {schema}.outbox where state = 2 limit $1) as aside),
    (
        select emitted_at from {schema}.outbox
        where seq = least(
            (
                select min(oldest.seq) from generate_series(0, $2::int4 - 1) as lanes (lane)
                cross join lateral (
                    select seq from {schema}.outbox where state = 0 and outbox.lane = lanes.lane order by seq limit 1
                ) as oldest
            ),
            (select seq from {schema}.outbox where state = 1 order by seq limit 1)
        )
    )
