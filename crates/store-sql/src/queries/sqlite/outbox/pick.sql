-- The oldest unsent rows of lanes that are held (index oncebox_outbox_unsent, from its beginning). Locks nothing. It looks
-- at all lanes together: $4, how many of each, is as many as are wanted.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
held as materialized (
    select lanes.lane from json_each($5) as asked
    cross join oncebox_lanes as lanes
        on lanes.queue = (select id from oncebox_queues where name = $2)
            and lanes.lane = asked.value ->> 0 and lanes.epoch = asked.value ->> 1
    where lanes.expires_at > (select now from clock)
)
select seq, lane from oncebox_outbox indexed by oncebox_outbox_unsent
where state = 0 and seq > 0 and lane in (select lane from held)
order by seq
limit min($3, $4)
