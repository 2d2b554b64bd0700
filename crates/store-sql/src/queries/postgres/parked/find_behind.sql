-- Rows that are due (index parked_due, the first $3 of them) and stand behind an earlier one of their order key (index
-- parked_blocking), where nobody is just taking one away: whoever does holds the lock of `keep_turns`, and nobody can
-- begin to before this transaction has ended. Never waits.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
due as materialized (
    select id, order_hash, order_key, state from {schema}.parked
    where consumer = $2 and behind = 0 and due_at <= (select now from clock)
    order by due_at, id
    limit $3
),
behind as materialized (
    select due.id, due.order_hash & 63 as turn from due
    where due.order_hash is not null and due.state <> 2 and exists (
        select from {schema}.parked as earlier
        where earlier.consumer = $2 and earlier.order_hash = due.order_hash and earlier.state <> 2
            and earlier.id < due.id and earlier.order_key = due.order_key
    )
),
turns as materialized (select distinct turn from behind),
held as materialized (
    select turn from turns
    where pg_try_advisory_xact_lock(hashtextextended('oncebox turns of {schema} ' || $2::int2, turn))
)
select behind.id from behind join held using (turn)
