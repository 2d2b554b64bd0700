-- As `pick.sql`, leaving out topics (index oncebox_outbox_unsent, which has the topic: rows that are left out are passed
-- over without a look at the table).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
held as materialized (
    select lanes.lane, asked.value ->> 2 as after from json_each($5) as asked
    cross join oncebox_lanes as lanes
        on lanes.queue = (select id from oncebox_queues where name = $2)
            and lanes.lane = asked.value ->> 0 and lanes.epoch = asked.value ->> 1
    where lanes.expires_at > (select now from clock)
)
select oncebox_outbox.seq, oncebox_outbox.lane from oncebox_outbox indexed by oncebox_outbox_unsent
cross join held on held.lane = oncebox_outbox.lane and held.after < oncebox_outbox.seq
where oncebox_outbox.state = 0 and oncebox_outbox.seq > (select min(after) from held)
    and topic_hash not in (select value ->> 3 from json_each($5) where value ->> 3 is not null)
order by oncebox_outbox.seq
limit min($3, $4)
