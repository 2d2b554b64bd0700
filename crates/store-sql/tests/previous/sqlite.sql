-- @ archive/add.sql
insert into oncebox_archive (consumer, first_at, last_at, keys, scheme, hashes) values ($1, $2, $3, $4, $5, $6)
-- @ archive/read.sql
select id, first_at, last_at, scheme, hashes from oncebox_archive
where consumer = $1 and id > $2
order by id
limit $3
-- @ archive/size.sql
select coalesce(sum(keys), 0), min(first_at) from oncebox_archive where consumer = $1
-- @ archive/sweep.sql
delete from oncebox_archive
where id in (
    select id from oncebox_archive
    where consumer = $1 and last_at < $2
    order by id
    limit $3
)
-- @ audit/add.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_audit (at, consumer, replay, messages, verb, who, why, detail)
select now, $2, $3, $4, $5, $6, $7, $8 from clock
returning id
-- @ audit/list.sql
select id, at, consumer, replay, messages, verb, who, why, detail
from oncebox_audit
where id < $1
order by id desc
limit $2
-- @ counters/begin.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_counters (process, part, label, began_at, seen_at, body)
select $2, part.key, $3, clock.now, clock.now, part.value from clock, json_each($4) as part
where true
on conflict (process, part) do update set seen_at = excluded.seen_at, body = excluded.body
-- @ counters/lock_sum.sql
select part, body, seen_at from oncebox_counters where process = $1 order by part
-- @ counters/make_sum.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_counters (process, part, label, began_at, seen_at, body)
select $2, part.key, '', clock.now, clock.now, '{}' from clock, json_each($3) as part
where true
on conflict (process, part) do nothing
-- @ counters/read.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select clock.now, process, part, label, began_at, seen_at, body from clock, oncebox_counters order by process, part
-- @ counters/take_gone.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
delete from oncebox_counters
where process in (
    select distinct process from oncebox_counters
    where process <> $2 and seen_at < (select now from clock) - $3
    limit $4
)
returning part, body, seen_at
-- @ counters/take_one.sql
delete from oncebox_counters where process = $1 returning part, body, seen_at
-- @ counters/write.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_counters set
    seen_at = (select now from clock),
    body = (select value from json_each($3) where key = oncebox_counters.part)
where process = $2 and part in (select key from json_each($3))
-- @ depths/lanes.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
oldest as materialized (
    select lane, seq from oncebox_outbox indexed by oncebox_outbox_unsent
    where state = 0 and $3 > 0
    order by seq
    limit $2 * 10 + 1
),
counted as (select lane, count(*) as unsent, min(seq) as first from oldest group by lane)
select
    counted.lane,
    counted.unsent,
    (select count(*) from oldest) > $2 * 10,
    max((select now from clock) - (select emitted_at from oncebox_outbox where seq = counted.first), 0) / 1000000,
    exists (
        select 1 from oncebox_lanes as lanes
        where lanes.queue = (select id from oncebox_queues where name = $4) and lanes.lane = counted.lane
            and lanes.owner is not null and lanes.expires_at > (select now from clock)
    )
from counted
order by counted.lane
-- @ depths/parked.sql
select
    (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_due
            where consumer = $1 and due_at is not null and behind = 0
            limit $2
        )
    ),
    (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_behind
            where consumer = $1 and behind = 1 and state <> 3
            limit $2
        )
    ),
    (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_dead
            where consumer = $1 and state = 3
            limit $2
        )
    )
-- @ depths/queue.sql
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
-- @ horizon/advance.sql
update oncebox_consumers set horizon = max(coalesce(horizon, $2), $2) where id = $1
returning horizon
-- @ horizon/checkpoint.sql
update oncebox_consumers set checkpoint = $2 where id = $1 and (checkpoint is null or checkpoint <= $2)
returning checkpoint
-- @ horizon/consumers.sql
select id, name, horizon, checkpoint from oncebox_consumers order by name
-- @ horizon/expire.sql
delete from oncebox_inbox
where consumer = $1 and key in (
    select old.key from oncebox_inbox as old
    where old.consumer = $1 and old.outcome <> 4 and old.processed_at >= $4 and old.processed_at < $2
        and not exists (select 1 from oncebox_parked as parked where parked.consumer = $1 and parked.key = old.key)
        and not ($1 = 0 and exists (
            select 1 from oncebox_consumers as consumers
            cross join oncebox_parked as parked on parked.consumer = consumers.id and parked.key = old.key
        ))
    order by old.processed_at
    limit $3
)
returning processed_at, key
-- @ horizon/newest_deleted.sql
select horizon from oncebox_consumers where id = $1
-- @ horizon/next.sql
select max($1, $2)
-- @ horizon/now.sql
select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer))
-- @ horizon/old.sql
with seen as (
    select count(*) as records, min(processed_at) as oldest from (
        select processed_at from oncebox_inbox
        where consumer = $1 and processed_at < $2
        order by processed_at
        limit 100000
    )
), held as (
    select count(distinct key) as records from (
        select parked.key from oncebox_consumers as consumers
        cross join oncebox_parked as parked on parked.consumer = consumers.id
        cross join oncebox_inbox as inbox on inbox.consumer = $1 and inbox.key = parked.key
        where (consumers.id = $1 or $1 = 0) and inbox.processed_at < $2
        limit $3
    )
)
select seen.records, seen.records < 100000, seen.oldest, held.records from seen, held
-- @ horizon/read.sql
select max(coalesce(horizon, checkpoint), coalesce(checkpoint, horizon)) from oncebox_consumers where id = $1
-- @ horizon/sweep_received.sql
delete from oncebox_queue
where +processed_at is not null and id in (
    select old.id from oncebox_queue as old
    where old.queue = (select queues.id from oncebox_queues as queues where queues.name = $2)
        and old.processed_at is not null and old.processed_at < $3
        and not exists (select 1 from oncebox_parked as parked where parked.consumer = $1 and parked.key = old.key)
    order by old.processed_at
    limit $4
)
-- @ inbox/alive.sql
select 1
-- @ inbox/claim.sql
insert into oncebox_inbox (consumer, scheme, key, fingerprint, id_hash, processed_at)
select $1, $2, unhex(value ->> 0), value ->> 1, value ->> 2, cast(unixepoch('subsec') * 1000000 as integer)
from json_each($3)
where true
on conflict do nothing
returning key, 1
-- @ inbox/claim_fresh.sql
insert into oncebox_inbox (consumer, scheme, key, fingerprint, id_hash, processed_at)
select $1, $2, unhex(value ->> 0), value ->> 1, value ->> 2, cast(unixepoch('subsec') * 1000000 as integer)
from json_each($3)
-- @ inbox/claim_one.sql
insert into oncebox_inbox (consumer, scheme, key, fingerprint, id_hash, processed_at)
values ($1, $2, $3, $4, $5, cast(unixepoch('subsec') * 1000000 as integer))
on conflict do nothing
returning key, 1
-- @ inbox/find_parked.sql
select inbox.consumer, inbox.key, inbox.result
from json_each($1) as asked
cross join oncebox_inbox as inbox on inbox.consumer = asked.value ->> 0 and inbox.key = unhex(asked.value ->> 1)
where inbox.outcome = 4
-- @ inbox/read.sql
select inbox.consumer, inbox.key, inbox.fingerprint, inbox.scheme, inbox.outcome, inbox.result, inbox.id_hash
from json_each($1) as asked
cross join oncebox_inbox as inbox on inbox.consumer = asked.value ->> 0 and inbox.key = unhex(asked.value ->> 1)
-- @ inbox/reclaim.sql
update oncebox_inbox
set outcome = 0, result = null, processed_at = cast(unixepoch('subsec') * 1000000 as integer)
from json_each($1) as parked
where oncebox_inbox.consumer = parked.value ->> 0 and oncebox_inbox.key = unhex(parked.value ->> 1)
    and oncebox_inbox.outcome = 4
-- @ inbox/record.sql
update oncebox_inbox
set outcome = done.value ->> 2, result = unhex(done.value ->> 3)
from json_each($1) as done
where oncebox_inbox.consumer = done.value ->> 0 and oncebox_inbox.key = unhex(done.value ->> 1)
-- @ inbox/unclaim.sql
delete from oncebox_inbox
where consumer in (select value ->> 0 from json_each($1)) and key in (select unhex(value ->> 1) from json_each($1))
    and (consumer, key) in (select value ->> 0, unhex(value ->> 1) from json_each($1))
-- @ journal/add.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_journal (
    process, at, consumer, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause
)
select
    $2, clock.now - (value ->> 1), value ->> 0, unhex(value ->> 2), value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, unhex(value ->> 8), unhex(value ->> 9)
from clock, json_each($3) as entry
where true
order by entry.key
-- @ journal/read.sql
select at, consumer, key, process, ended, cause, attempt, was_parked, handler_millis, coordinate
from (
    select * from oncebox_journal
    where key in (select unhex(value ->> 0) from json_each($4)) and ($2 is null or consumer = $2)
    union
    select * from oncebox_journal
    where id_hash = $3 and ($2 is null or consumer = $2)
)
order by at desc, id desc
limit $1
-- @ journal/sweep.sql
delete from oncebox_journal
where id in (
    select id from oncebox_journal
    where consumer = $1 and at < $2
    order by at
    limit $3
)
-- @ lanes/check.sql
select lane from oncebox_lanes
where queue = $1 and (lane, epoch) in (select value ->> 0, value ->> 1 from json_each($2))
-- @ lanes/clear.sql
delete from oncebox_lanes where queue = $1
-- @ lanes/count.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select
    (select count(*) from oncebox_lanes where queue = $2),
    (select count(*) from oncebox_members where queue = $2 and expires_at > (select now from clock))
-- @ lanes/create.sql
insert into oncebox_lanes (queue, lane, epoch)
select queues.id, number.value ->> 0, queues.epoch from oncebox_queues as queues, json_each($2) as number
where queues.id = $1
on conflict do nothing
-- @ lanes/forget.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
delete from oncebox_members where queue = $2 and expires_at <= (select now from clock)
-- @ lanes/give_back.sql
update oncebox_lanes set owner = null, expires_at = 0
where queue = $1 and owner = $2 and lane in (select value ->> 0 from json_each($3))
-- @ lanes/join.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_members (queue, owner, expires_at)
select $2, $3, now + $4 from clock
where true
on conflict (queue, owner) do update set expires_at = excluded.expires_at
-- @ lanes/leave.sql
update oncebox_lanes set owner = null, expires_at = 0 where queue = $1 and owner = $2
-- @ lanes/renew.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_lanes set expires_at = (select now from clock) + $4
where queue = $2 and owner = $3 and expires_at > (select now from clock)
returning lane, epoch
-- @ lanes/resign.sql
delete from oncebox_members where queue = $1 and owner = $2
-- @ lanes/take.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_lanes set owner = $3, epoch = epoch + 1, expires_at = (select now from clock) + $4
where queue = $2 and lane in (
    select lane from oncebox_lanes
    where queue = $2 and (owner is null or expires_at <= (select now from clock))
        and lane not in (select value ->> 0 from json_each($6))
    order by lane
    limit $5
)
returning lane, epoch
-- @ names/add_consumer.sql
insert into oncebox_consumers (id, name)
select coalesce(max(id), 0) + 1, $1 from oncebox_consumers
where true
on conflict do nothing
-- @ names/add_queue.sql
insert into oncebox_queues (id, name)
select coalesce(max(id), 0) + 1, $1 from oncebox_queues
where true
on conflict do nothing
-- @ names/find_consumer.sql
select id from oncebox_consumers where name = $1
-- @ names/find_queue.sql
select id, lanes from oncebox_queues where name = $1
-- @ names/set_queue_lanes.sql
update oncebox_queues
set lanes = $2,
    epoch = max(epoch, coalesce((select max(lanes.epoch) from oncebox_lanes as lanes where lanes.queue = $1), 0)) + 1
where id = $1
-- @ offsets/advance.sql
update oncebox_offsets set next = asked.value ->> 3, witness = asked.value ->> 4
from json_each($2) as asked
where oncebox_offsets.consumer = $1 + 0 * asked.key and oncebox_offsets.log = unhex(asked.value ->> 0)
    and epoch = asked.value ->> 1 and next = asked.value ->> 2
-- @ offsets/begin.sql
update oncebox_offsets set next = asked.value ->> 2
from json_each($2) as asked
where oncebox_offsets.consumer = $1 + 0 * asked.key and oncebox_offsets.log = unhex(asked.value ->> 0)
    and epoch = asked.value ->> 1 and next is null
-- @ offsets/lock.sql
select asked.key, held.next
from json_each($2) as asked
cross join oncebox_offsets as held
    on held.consumer = $1 and held.log = unhex(asked.value ->> 0) and held.epoch = asked.value ->> 1
-- @ offsets/take.sql
insert into oncebox_offsets (consumer, log, epoch)
select $1, unhex(value ->> 0), 1 from json_each($2)
where true
on conflict (consumer, log) do update set epoch = epoch + 1
returning log, epoch, next, witness
-- @ outbox/backlog.sql
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
-- @ outbox/delete.sql
delete from oncebox_outbox
where seq in (select value ->> 0 from json_each($1)) and +state in (0, 1)
-- @ outbox/emit.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_outbox (
    emitted_at,
    lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    clock.now,
    value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), unhex(value ->> 4), unhex(value ->> 5),
    unhex(value ->> 6), unhex(value ->> 7), unhex(value ->> 8), value ->> 9, unhex(value ->> 10), unhex(value ->> 11),
    value ->> 12, value ->> 13
from clock, json_each($2) as message
where true
order by message.key
on conflict (key) where state <> 3 do nothing
returning key
-- @ outbox/fence.sql
select lane from oncebox_lanes
where queue = (select id from oncebox_queues where name = $1)
    and (lane, epoch) in (select value ->> 0, value ->> 1 from json_each($2))
-- @ outbox/keep.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_outbox set state = 3, settled_at = (select now from clock), reason = null
where seq in (select value ->> 0 from json_each($2)) and +state in (0, 1)
-- @ outbox/page.sql
select
    seq, topic, reason, settled_at, order_key, message_id, source, kind, version, headers, payload, made_at,
    made_at_nanos
from oncebox_outbox
where state in (1, 2) and state = 2 and seq > $1
order by seq
limit $2
-- @ outbox/pick.sql
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
order by oncebox_outbox.seq
limit min($3, $4)
-- @ outbox/pick_without.sql
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
-- @ outbox/read.sql
select
    outbox.seq,
    outbox.order_hash is not null and exists (
        select 1 from oncebox_outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = outbox.order_hash and earlier.seq < outbox.seq
            and earlier.topic = outbox.topic and earlier.order_key = outbox.order_key
    ),
    outbox.topic, outbox.order_key, outbox.message_id, outbox.source, outbox.kind, outbox.version, outbox.headers,
    outbox.payload, outbox.made_at, outbox.made_at_nanos
from oncebox_outbox as outbox
where outbox.seq in (select value ->> 0 from json_each($1)) and +outbox.state = 0
order by outbox.seq
-- @ outbox/retry.sql
update oncebox_outbox set state = 0, settled_at = null, reason = null
where seq in (select value ->> 0 from json_each($1)) and +state = 2
returning seq
-- @ outbox/set_aside.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_outbox
set state = 2, settled_at = (select now from clock), reason = cast(unhex(receipt.value ->> 1) as text)
from json_each($2) as receipt
where oncebox_outbox.seq = receipt.value ->> 0 and +oncebox_outbox.state in (0, 1)
-- @ outbox/set_behind.sql
update oncebox_outbox as later set state = 1
where later.seq in (select value ->> 0 from json_each($1)) and +later.state = 0 and later.order_hash is not null
    and exists (
        select 1 from oncebox_outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = later.order_hash and earlier.seq < later.seq
            and earlier.topic = later.topic and earlier.order_key = later.order_key
    )
-- @ outbox/skip.sql
delete from oncebox_outbox where seq in (select value ->> 0 from json_each($1)) and +state = 2
returning seq
-- @ outbox/sweep.sql
delete from oncebox_outbox
where +state = 3 and seq in (
    select seq from oncebox_outbox
    where state = 3 and settled_at < $1
    order by settled_at
    limit $2
)
-- @ outbox/wake_behind.sql
with gone as materialized (
    select order_hash, topic, order_key, min(seq) as seq from oncebox_outbox
    where seq in (select value ->> 0 from json_each($2)) and order_hash is not null
        -- Mostly nothing waits at all; then these rows need not be read.
        and exists (select 1 from oncebox_outbox where state in (1, 2))
    group by order_hash, topic, order_key
),
reach as materialized (
    select gone.*, coalesce((
        select later.seq from oncebox_outbox as later
        where later.state in (1, 2) and +later.state = 1 and later.order_hash = gone.order_hash
            and later.seq > gone.seq and later.topic = gone.topic and later.order_key = gone.order_key
        order by later.seq
        limit 1 offset $1 - 1
    ), 9223372036854775807) as last
    from gone
)
update oncebox_outbox set state = 0
where seq in (
    select later.seq from reach
    cross join oncebox_outbox as later
        on later.state in (1, 2) and later.order_hash = reach.order_hash
            and later.seq > reach.seq and later.seq <= reach.last
    where +later.state = 1 and later.topic = reach.topic and later.order_key = reach.order_key
)
-- @ parked/count_blocking.sql
select (
    select count(*) from (
        select 1 from oncebox_parked as parked
        where parked.consumer = $1 and parked.order_hash = asked.value ->> 0 and parked.state <> 2
            and parked.order_key = unhex(asked.value ->> 1)
        limit $2
    )
)
from json_each($3) as asked
order by asked.key
-- @ parked/count_gaps.sql
select count(*) from oncebox_parked
where consumer = $1 and order_hash = $2 and order_key = $3 and state = 2
-- @ parked/end.sql
delete from oncebox_parked
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($1))
returning id, consumer, case when state <> 2 then order_hash end, order_key
-- @ parked/extend.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set due_at = (select now from clock) + $2
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($3))
-- @ parked/find_behind.sql
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
-- @ parked/forget_starts.sql
delete from oncebox_starts
where consumer in (select value ->> 0 from json_each($1)) and key in (select unhex(value ->> 1) from json_each($1))
    and (consumer, key) in (select value ->> 0, unhex(value ->> 1) from json_each($1))
-- @ parked/is_blocked.sql
select asked.key
from json_each($2) as asked
where exists (
    select 1 from oncebox_parked as parked
    where parked.consumer = $1 and parked.order_hash = asked.value ->> 0 and parked.state <> 2
        and parked.order_key = unhex(asked.value ->> 1)
)
-- @ parked/note_start.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_starts (consumer, key, starts, waits, at)
select $2, $3, 1, 0, now from clock
where true
on conflict (consumer, key) do update
set starts = case when $4 > 1 and waits = $4 then 1 else starts + 1 end, waits = 0, at = excluded.at
returning starts
-- @ parked/note_wait.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_starts (consumer, key, starts, waits, at)
select $2, $3, 0, 1, now from clock
where true
on conflict (consumer, key) do update set waits = waits + 1, at = excluded.at
returning starts, waits
-- @ parked/park.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_parked (
    first_at, last_at, due_at, consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
    state, class, cause, reason, attempts,
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
)
select
    clock.now, clock.now, clock.now + (value ->> 8),
    value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4, value ->> 5, unhex(value ->> 6),
    value ->> 7, value ->> 9, cast(unhex(value ->> 10) as text), cast(unhex(value ->> 11) as text), value ->> 12,
    unhex(value ->> 13), unhex(value ->> 14), unhex(value ->> 15), unhex(value ->> 16), value ->> 17,
    unhex(value ->> 18), unhex(value ->> 19), value ->> 20, value ->> 21
from clock, json_each($2) as message
where true
order by message.key
on conflict (consumer, key, fingerprint, scheme) do nothing
returning consumer, key, fingerprint, scheme
-- @ parked/pick.sql
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
-- @ parked/put_back.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set fence = (oncebox_parked.fence / 1024 + 1) * 1024, state = value ->> 2, behind = 0,
    due_at = (select now from clock) + (value ->> 3),
    class = value ->> 4, cause = cast(unhex(value ->> 5) as text), reason = cast(unhex(value ->> 6) as text),
    attempts = value ->> 7, last_at = (select now from clock)
from json_each($2) as verdict
where oncebox_parked.id = verdict.value ->> 0 and oncebox_parked.fence = verdict.value ->> 1
    and +oncebox_parked.due_at is not null
returning id, consumer, case when state = 2 then order_hash end, order_key
-- @ parked/release.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set fence = (fence / 1024 + 1) * 1024, behind = 0, due_at = (select now from clock) + $2
where +due_at is not null and (id, fence) in (select value ->> 0, value ->> 1 from json_each($3))
-- @ parked/set_behind.sql
update oncebox_parked set behind = 1
where id in (select value ->> 0 from json_each($1))
-- @ parked/take.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set fence = fence + 1, due_at = (select now from clock) + $2
where id in (select value ->> 0 from json_each($3))
returning
    id, fence, owns_record, attempts, first_at, message_order_key, message_id,
    source, kind, version, headers, payload, made_at, made_at_nanos
-- @ parked/wake_gaps.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked set due_at = (select now from clock)
where id in (
    select waiting.id
    from json_each($3) as woken
    cross join oncebox_parked as waiting
    where waiting.consumer = $2 and waiting.order_hash = woken.value ->> 0
        and waiting.order_key = unhex(woken.value ->> 1) and waiting.state = 2
        and waiting.fence % 1024 = 0 and +waiting.due_at > (select now from clock)
)
-- @ parked/wake_next.sql
update oncebox_parked set behind = 0
where behind = 1 and id in (
    select (
        select waiting.id from oncebox_parked as waiting
        where waiting.consumer = gone.value ->> 1 and waiting.order_hash = gone.value ->> 2 and waiting.state <> 2
            and waiting.id > gone.value ->> 0 and waiting.order_key = unhex(gone.value ->> 3)
        order by waiting.id
        limit 1
    )
    from json_each($1) as gone
)
-- @ quarantine/annotate.sql
update oncebox_parked set note = $1 where id in (select value ->> 0 from json_each($2))
returning id
-- @ quarantine/causes.sql
select cause, count(*), count(*) filter (where state = 3), min(first_at), max(last_at)
from oncebox_parked
where consumer = $1
group by cause
order by count(*) desc, cause
-- @ quarantine/delete.sql
delete from oncebox_parked where id in (select value ->> 0 from json_each($1))
returning id, consumer, case when state <> 2 then order_hash end, order_key
-- @ quarantine/find_records.sql
select asked.key, inbox.consumer, inbox.fingerprint, inbox.scheme, inbox.outcome
from json_each($2) as asked
cross join oncebox_inbox as inbox on inbox.consumer in ($1, 0) and inbox.key = unhex(asked.value ->> 0)
-- @ quarantine/is_parked.sql
select id from oncebox_parked where consumer = $1 and key = $2 and fingerprint = $3 and scheme = $4
-- @ quarantine/lock_records.sql
select inbox.consumer, inbox.key
from json_each($1) as asked
cross join oncebox_inbox as inbox on inbox.consumer = asked.value ->> 0 and inbox.key = unhex(asked.value ->> 1)
where inbox.outcome = 4
-- @ quarantine/lock_rows.sql
select id, consumer, key, fingerprint, scheme, owns_record, state
from oncebox_parked
where id in (select value ->> 0 from json_each($1))
order by id
-- @ quarantine/page.sql
select
    parked.id, parked.consumer, parked.key, parked.fingerprint, parked.scheme, parked.owns_record, parked.order_key,
    parked.state, parked.due_at, parked.class, parked.cause, parked.reason, parked.attempts, parked.first_at,
    parked.last_at, parked.note, parked.replay, parked.supersedes,
    parked.state <> 2 and parked.order_hash is not null and exists (
        select 1 from oncebox_parked as earlier
        where earlier.consumer = $1 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id <= $2 and earlier.state = 3 and earlier.order_key = parked.order_key
    ),
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
from oncebox_parked as parked
where parked.consumer = $1 and parked.id > $2
order by parked.id
limit $3
-- @ quarantine/read.sql
select
    parked.id, parked.consumer, parked.key, parked.fingerprint, parked.scheme, parked.owns_record, parked.order_key,
    parked.state, parked.due_at, parked.class, parked.cause, parked.reason, parked.attempts, parked.first_at,
    parked.last_at, parked.note, parked.replay, parked.supersedes,
    parked.state <> 2 and parked.order_hash is not null and exists (
        select 1 from oncebox_parked as earlier
        where earlier.consumer = parked.consumer and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.state = 3 and earlier.order_key = parked.order_key
    ),
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
from oncebox_parked as parked
where parked.id = $1
-- @ quarantine/refingerprint.sql
update oncebox_inbox set fingerprint = $3, scheme = $4
where consumer = $1 and key = $2 and outcome = 4
-- @ quarantine/reject.sql
update oncebox_inbox set outcome = 1, result = $1
from json_each($2) as asked
where oncebox_inbox.consumer = asked.value ->> 0 and oncebox_inbox.key = unhex(asked.value ->> 1)
    and oncebox_inbox.outcome = 4
-- @ quarantine/revive.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set state = 0, behind = 0, due_at = (select now from clock), fence = fence + 1, replay = $2
where id in (select value ->> 0 from json_each($3))
-- @ quarantine/supersede.sql
update oncebox_parked
set supersedes = $2, key = $3, fingerprint = $4, scheme = $5, owns_record = 1, replay = null, fence = fence + 1,
    message_order_key = unhex(value ->> 0), message_id = unhex(value ->> 1), source = unhex(value ->> 2),
    kind = unhex(value ->> 3), version = value ->> 4, headers = unhex(value ->> 5), payload = unhex(value ->> 6),
    made_at = value ->> 7, made_at_nanos = value ->> 8
from json_each($6) as message
where oncebox_parked.id = $1
-- @ quarantine/withdraw.sql
update oncebox_replays set withdrawn = withdrawn + taken.messages
from (
    select replay, count(*) as messages from oncebox_parked
    where id in (select value ->> 0 from json_each($1)) and +replay is not null
    group by replay
) as taken
where oncebox_replays.id = taken.replay
-- @ queue/delete.sql
delete from oncebox_queue
where +queue = $1 and +visible_at is not null
    and (id, deliveries) in (select value ->> 0, value ->> 1 from json_each($2))
-- @ queue/enqueue.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_queue (
    queue, visible_at, received_at,
    lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    $2, clock.now, clock.now,
    value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3, value ->> 4, unhex(value ->> 5),
    unhex(value ->> 6), unhex(value ->> 7), unhex(value ->> 8), value ->> 9,
    unhex(value ->> 10), unhex(value ->> 11), value ->> 12, value ->> 13
from clock, json_each($3) as message
where true
order by message.key
on conflict (queue, key) where key is not null do nothing
returning key
-- @ queue/extend.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set visible_at = (select now from clock) + $3, error = coalesce($4, error)
where +queue = $2 and +visible_at is not null
    and (id, deliveries) in (
        select receipt.value ->> 0, receipt.value ->> 1 from json_each($5) as receipt
        where receipt.value ->> 2 is null or exists (
            select 1 from oncebox_lanes as lanes
            where lanes.queue = $2 and lanes.lane = receipt.value ->> 2 and lanes.epoch = receipt.value ->> 3
        )
    )
-- @ queue/is_used.sql
select 1 from oncebox_queue where queue = $1 and visible_at is not null limit 1
-- @ queue/keep.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set visible_at = null, processed_at = (select now from clock), error = null
where +queue = $2 and +visible_at is not null
    and (id, deliveries) in (select value ->> 0, value ->> 1 from json_each($3))
-- @ queue/lease.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set deliveries = deliveries + 1, visible_at = (select now from clock) + $4
where id in (
    select id from oncebox_queue
    where queue = $2 and visible_at <= (select now from clock)
    order by visible_at, id
    limit $3
)
returning
    id, deliveries, lane, order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
-- @ queue/pick_in_lanes.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now),
held as materialized (
    select lanes.lane from json_each($4) as asked
    cross join oncebox_lanes as lanes
        on lanes.queue = $2 and lanes.lane = asked.value ->> 0 and lanes.epoch = asked.value ->> 1
    where lanes.expires_at > (select now from clock)
)
select queue.id from oncebox_queue as queue
where queue.queue = $2 and queue.lane is not null and queue.visible_at is not null
    and +queue.visible_at <= (select now from clock) and queue.lane in (select lane from held)
    and not exists (
        select 1 from oncebox_queue as earlier
        where earlier.queue = queue.queue and earlier.order_hash = queue.order_hash
            and earlier.visible_at > (select now from clock) and earlier.lane is not null
            and earlier.id < queue.id and earlier.order_key = queue.order_key
    )
order by queue.id
limit $3
-- @ queue/read_keys.sql
select key, fingerprint, scheme
from oncebox_queue
where queue = $1 and key in (select unhex(value ->> 0) from json_each($2))
-- @ queue/release.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set visible_at = (select now from clock) + $3, error = coalesce($4, error)
where +queue = $2 and +visible_at is not null
    and (id, deliveries) in (
        select receipt.value ->> 0, receipt.value ->> 1 from json_each($5) as receipt
        where receipt.value ->> 2 is null or exists (
            select 1 from oncebox_lanes as lanes
            where lanes.queue = $2 and lanes.lane = receipt.value ->> 2 and lanes.epoch = receipt.value ->> 3
        )
    )
-- @ queue/take_picked.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_queue
set deliveries = deliveries + 1, visible_at = (select now from clock) + $3
where queue = $2 and id in (select value ->> 0 from json_each($4))
returning
    id, deliveries, lane, order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
-- @ replays/create.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
insert into oncebox_replays (
    consumer, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, canary_passed, who, why,
    created_at, changed_at
)
select $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now, now from clock
returning id
-- @ replays/hold.sql
update oncebox_replays set fence = $2, held_until = $3 where id = $1
-- @ replays/let_go.sql
update oncebox_replays set held_until = null where id = $1 and fence = $2
-- @ replays/list.sql
select
    0,
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from oncebox_replays
where $1 is null or consumer = $1
order by id desc
limit $2
-- @ replays/on_their_way.sql
select count(*) filter (where state <> 3 and not held_up), count(*) filter (where state <> 3 and held_up),
    count(*) filter (where state = 3)
from (
    select parked.state, parked.state <> 2 and parked.order_hash is not null and exists (
        select 1 from oncebox_parked as earlier
        where earlier.consumer = $1 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.state = 3 and earlier.order_key = parked.order_key
    ) as held_up
    from oncebox_parked as parked
    where parked.replay = $2 and +parked.consumer = $1
) as revived
-- @ replays/open.sql
select
    0,
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from oncebox_replays
where state < 3 and ($1 is null or consumer = $1)
order by id desc
limit $2
-- @ replays/read.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
select
    (select now from clock),
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from oncebox_replays
where id = $2
-- @ replays/save.sql
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_replays
set changed_at = (select now from clock), state = $3, stop_reason = $4, looked_at = $5, revived = $6, refused = $7,
    held_up = $8, moving = $9, canary_passed = $10, base_revived = $11, base_done = $12, base_failed = $13
where id = $2
-- @ replays/sweep.sql
delete from oncebox_replays
where id in (
    select id from oncebox_replays as old
    where state in (3, 4) and changed_at < $1
        and not exists (select 1 from oncebox_parked as parked where parked.replay = old.id)
    limit $2
)
-- @ trail/beyond.sql
select
    exists (select 1 from oncebox_queue order by id desc limit 1 offset $1),
    exists (select 1 from oncebox_parked order by id desc limit 1 offset $1),
    exists (select 1 from oncebox_outbox order by seq desc limit 1 offset $1)
-- @ trail/outbox_after.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from oncebox_outbox
where seq > $2 and state <> 3
order by seq
limit $1
-- @ trail/outbox_by_cause.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from (select * from oncebox_outbox order by seq desc limit $3) as newest
where headers is not null and instr(headers, $2) > 0
order by seq
limit $1
-- @ trail/outbox_by_id.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload) from oncebox_outbox where state <> 3 and key = $2
union all
select * from (
    select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
    from (select * from oncebox_outbox order by seq desc limit $4) as newest
    where state = 3 and message_id = $3
) as sent
order by seq
limit $1
-- @ trail/outbox_row.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from oncebox_outbox
where seq = $2
limit $1
-- @ trail/parked_by_id.sql
select id
from (select id, message_id from oncebox_parked order by id desc limit $3)
where message_id = $2
order by id
limit $1
-- @ trail/parked_by_key.sql
select parked.id
from json_each($2) as asked
cross join oncebox_consumers as consumers
cross join oncebox_parked as parked on parked.consumer = consumers.id and parked.key = unhex(asked.value ->> 0)
order by parked.id
limit $1
-- @ trail/queued.sql
select queues.name, queue.id, queue.kind, queue.source, queue.received_at, queue.visible_at, queue.deliveries, queue.error
from (select * from oncebox_queue order by id desc limit $3) as queue
join oncebox_queues as queues on queues.id = queue.queue
where queue.message_id = $2
order by queue.id
limit $1
-- @ trail/records.sql
select inbox.consumer, inbox.key, inbox.outcome, inbox.processed_at, case inbox.outcome when 1 then inbox.result end
from json_each($1) as asked
cross join oncebox_consumers as consumers
cross join oncebox_inbox as inbox on inbox.consumer = consumers.id and inbox.key = unhex(asked.value ->> 0)
order by inbox.consumer
-- @ versions/add.sql
insert into oncebox_versions (consumer, aggregate)
select $1, unhex(value ->> 0) from json_each($2)
where true
on conflict (consumer, aggregate) do update set version = version
returning aggregate, version
-- @ versions/advance.sql
update oncebox_versions set version = asked.value ->> 1
from json_each($2) as asked
where oncebox_versions.consumer = $1 + 0 * asked.key and oncebox_versions.aggregate = unhex(asked.value ->> 0)
-- @ versions/lock.sql
select asked.key, version.version
from json_each($2) as asked
cross join oncebox_versions as version on version.consumer = $1 and version.aggregate = unhex(asked.value ->> 0)
