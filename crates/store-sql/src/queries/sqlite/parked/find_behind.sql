-- Rows that are due (index oncebox_parked_due, the first $3 of them) and stand behind an earlier one of their order key
-- (index oncebox_parked_blocking).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
due as materialized (
    select id, order_hash, order_key, state from oncebox_parked
    where consumer = $2 and behind = 0 and due_at <= (select now from clock)
    order by due_at, id
    limit $3
)
select due.id from due
where due.order_hash is not null and due.state <> 2 and exists (
    select 1 from oncebox_parked as earlier
    where earlier.consumer = $2 and earlier.order_hash = due.order_hash and earlier.state <> 2
        and earlier.id < due.id and earlier.order_key = due.order_key
)
