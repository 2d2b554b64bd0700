-- Leases rows without order: those that have waited longest (index queue_visible). Rows that someone else is just
-- leasing or settling are passed over. As an array, because the planner takes a limit that it does not know for a tenth
-- of the table, and a join would then read all of it.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
due as (
    select id from {schema}.queue
    where queue = $2 and visible_at <= (select now from clock)
    order by visible_at, id
    limit $3
    for update skip locked
)
update {schema}.queue
set deliveries = queue.deliveries + 1, visible_at = (select now from clock) + $4::int8
where queue.id = any (array(select id from due))
returning
    queue.id, queue.deliveries, queue.lane, queue.order_key, queue.message_id, queue.source, queue.kind,
    queue.version, queue.headers, queue.payload, queue.made_at, queue.made_at_nanos
