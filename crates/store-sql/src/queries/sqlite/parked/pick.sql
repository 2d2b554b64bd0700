-- Picks the rows that are due, the longest due first (index oncebox_parked_due). A row is not due while an earlier one
-- of its order key is there (index oncebox_parked_blocking), in hand or dead. Rows that wait for a gap stand outside
-- that order. Rows that were found behind another are not looked at.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select parked.id from oncebox_parked as parked
where parked.consumer = $2 and parked.behind = 0 and parked.due_at <= (select now from clock)
    and (parked.order_hash is null or parked.state = 2 or not exists (
        select 1 from oncebox_parked as earlier
        where earlier.consumer = $2 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.order_key = parked.order_key
    ))
order by parked.due_at, parked.id
limit $3
