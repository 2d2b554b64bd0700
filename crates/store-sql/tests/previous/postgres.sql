-- @ archive/add.sql
insert into {schema}.archive (consumer, first_at, last_at, keys, scheme, hashes) values ($1, $2, $3, $4, $5, $6)
-- @ archive/read.sql
select id, first_at, last_at, scheme, hashes from {schema}.archive
where consumer = $1 and id > $2
order by id
limit $3
-- @ archive/size.sql
select coalesce(sum(keys), 0)::int8, min(first_at) from {schema}.archive where consumer = $1
-- @ archive/sweep.sql
delete from {schema}.archive
where consumer = $1 and id = any (array(
    select id from {schema}.archive
    where consumer = $1 and last_at < $2
    order by id
    limit $3
    for update skip locked
))
-- @ audit/add.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.audit (at, consumer, replay, messages, verb, who, why, detail)
select now, $2, $3, $4, $5, $6, $7, $8 from clock
returning id
-- @ audit/list.sql
select id, at, consumer, replay, messages, verb, who, why, detail
from {schema}.audit
where id < $1
order by id desc
limit $2
-- @ counters/begin.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.counters (process, part, label, began_at, seen_at, body)
select $2::bytea, part.name, $3::text, clock.now, clock.now, part.body
from clock, jsonb_each_text($4::text::jsonb) as part (name, body)
on conflict (process, part) do update set seen_at = excluded.seen_at, body = excluded.body
-- @ counters/lock_sum.sql
select part, body, seen_at from {schema}.counters where process = $1 order by part for update
-- @ counters/make_sum.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.counters (process, part, label, began_at, seen_at, body)
select $2::bytea, part.name, '', clock.now, clock.now, '{}'
from clock, jsonb_object_keys($3::text::jsonb) as part (name)
on conflict (process, part) do nothing
-- @ counters/read.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select clock.now, process, part, label, began_at, seen_at, body from clock, {schema}.counters order by process, part
-- @ counters/take_gone.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
gone as (
    select distinct process from {schema}.counters
    where process <> $2 and seen_at < (select now from clock) - $3::int8
    limit $4
)
delete from {schema}.counters
where process in (select process from gone) and seen_at < (select now from clock) - $3::int8
returning part, body, seen_at
-- @ counters/take_one.sql
delete from {schema}.counters where process = $1 returning part, body, seen_at
-- @ counters/write.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.counters set seen_at = clock.now, body = part.body
from clock, jsonb_each_text($3::text::jsonb) as part (name, body)
where counters.process = $2 and counters.part = part.name
-- @ depths/lanes.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select
    number.lane,
    least(counted.unsent, $2::int8),
    (counted.unsent > $2::int8)::int4,
    greatest((select now from clock) - oldest.emitted_at, 0) / 1000000,
    exists (
        select from {schema}.lanes
        where lanes.queue = (select id from {schema}.queues where name = $4) and lanes.lane = number.lane
            and lanes.owner is not null and lanes.expires_at > (select now from clock)
    )::int4
from generate_series(0, $3::int4 - 1) as number (lane)
cross join lateral (
    select emitted_at from {schema}.outbox where state = 0 and outbox.lane = number.lane order by seq limit 1
) as oldest
cross join lateral (
    select count(*) as unsent
    from (select from {schema}.outbox where state = 0 and outbox.lane = number.lane order by seq limit $2 + 1) as waiting
) as counted
order by number.lane
-- @ depths/parked.sql
select
    (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and due_at is not null and behind = 0 order by due_at limit $2
        ) as due
    ),
    (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and behind = 1 and state <> 3 order by first_at limit $2
        ) as behind
    ),
    (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and state = 3 order by last_at limit $2
        ) as dead
    )
-- @ depths/queue.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
named as (select id from {schema}.queues where name = $2)
select
    (
        select count(*) from (
            select from {schema}.queue
            where queue = (select id from named) and visible_at is not null
            order by visible_at
            limit $3
        ) as waiting
    ),
    (
        select greatest((select now from clock) - received_at, 0) / 1000000 from {schema}.queue
        where queue = (select id from named) and visible_at <= (select now from clock)
        order by visible_at, id
        limit 1
    ),
    (
        select count(*) from (
            select from {schema}.queue
            where queue = (select id from named) and visible_at > (select now from clock) - $4::int8
                and visible_at <= (select now from clock)
            order by visible_at
            limit $3
        ) as arrived
    )
from named
-- @ horizon/advance.sql
update {schema}.consumers set horizon = greatest(horizon, $2::int8) where id = $1
returning horizon
-- @ horizon/checkpoint.sql
update {schema}.consumers set checkpoint = $2 where id = $1 and (checkpoint is null or checkpoint <= $2)
returning checkpoint
-- @ horizon/consumers.sql
select id, name, horizon, checkpoint from {schema}.consumers order by name
-- @ horizon/expire.sql
delete from {schema}.inbox
where ctid = any (array(
    select inbox.ctid from {schema}.inbox
    where inbox.ctid >= format('(%s,0)', $4::int8)::tid and inbox.ctid < format('(%s,0)', $4::int8 + 256)::tid
        and inbox.consumer + 0 = $1 and inbox.outcome <> 4
        and inbox.processed_at + interval '0' < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
        and not exists (
            select from {schema}.parked where parked.consumer = inbox.consumer and parked.key = inbox.key
        )
        and not ($1::int2 = 0 and exists (
            select from {schema}.consumers
            join {schema}.parked on parked.consumer = consumers.id and parked.key = inbox.key
        ))
    limit $3
    for update of inbox skip locked
))
returning (extract(epoch from processed_at) * 1000000)::int8, key
-- @ horizon/newest_deleted.sql
select horizon from {schema}.consumers where id = $1
-- @ horizon/next.sql
select case
    when $2::int8 is not null then $1::int8
    when $1::int8 + 256 < pg_relation_size('{schema}.inbox') / current_setting('block_size')::int8 then $1::int8 + 256
end
-- @ horizon/now.sql
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)
-- @ horizon/old.sql
with share as (
    select least(100, 100.0 * 2000
        / greatest(1, pg_relation_size('{schema}.inbox') / current_setting('block_size')::int8)) as percent
), seen as (
    select count(*) as records, min(processed_at) as oldest
    from {schema}.inbox tablesample system (least(100, 100.0 * 2000
        / greatest(1, pg_relation_size('{schema}.inbox') / current_setting('block_size')::int8))) repeatable (1)
    where consumer = $1 and processed_at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
), held as (
    select count(distinct key) as records from (
        select parked.key from {schema}.parked
        join {schema}.inbox on inbox.consumer = $1 and inbox.key = parked.key
        where (parked.consumer = $1 or $1::int2 = 0)
            and inbox.processed_at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
        limit $3
    ) as parked_keys
)
select (seen.records * 100 / share.percent)::int8, (share.percent = 100)::int4,
    (extract(epoch from seen.oldest) * 1000000)::int8, held.records
from share, seen, held
-- @ horizon/read.sql
select greatest(horizon, checkpoint) from {schema}.consumers where id = $1
-- @ horizon/sweep_received.sql
delete from {schema}.queue
where processed_at is not null and id = any (array(
    select queue.id from {schema}.queue
    where queue.queue = (select queues.id from {schema}.queues where queues.name = $2) and queue.processed_at < $3
        and not exists (select from {schema}.parked where parked.consumer = $1 and parked.key = queue.key)
    order by queue.processed_at
    limit $4
    for update of queue skip locked
))
-- @ inbox/alive.sql
select 1
-- @ inbox/claim.sql
insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
select $1::int2, $2::int2, key, fingerprint, id_hash
from unnest($3::bytea[], $4::int8[], $5::int4[]) as asked (key, fingerprint, id_hash)
on conflict do nothing
returning key, exists (
    select from {schema}.parked where consumer = $1::int2 and order_hash is not null and state <> 2
)::int4
-- @ inbox/claim_fresh.sql
with claimed as (
    insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
    select $1::int2, $2::int2, key, fingerprint, id_hash
    from unnest($3::bytea[], $4::int8[], $5::int4[]) as asked (key, fingerprint, id_hash)
)
select exists (
    select from {schema}.parked where consumer = $1::int2 and order_hash is not null and state <> 2
)::int4
-- @ inbox/claim_one.sql
insert into {schema}.inbox (consumer, scheme, key, fingerprint, id_hash)
values ($1, $2, $3, $4, $5)
on conflict do nothing
returning key, exists (
    select from {schema}.parked where consumer = $1 and order_hash is not null and state <> 2
)::int4
-- @ inbox/find_parked.sql
select inbox.consumer, inbox.key, inbox.result
from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
join {schema}.inbox using (consumer, key)
where inbox.outcome = 4
order by inbox.consumer, inbox.key
for no key update of inbox
-- @ inbox/read.sql
select inbox.consumer, inbox.key, inbox.fingerprint, inbox.scheme, inbox.outcome, inbox.result, inbox.id_hash
from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
join {schema}.inbox using (consumer, key)
-- @ inbox/reclaim.sql
update {schema}.inbox
set outcome = 0, result = null, processed_at = clock_timestamp()
from unnest($1::int2[], $2::bytea[]) as parked (consumer, key)
where inbox.consumer = parked.consumer and inbox.key = parked.key and inbox.outcome = 4
-- @ inbox/record.sql
update {schema}.inbox
set outcome = done.outcome, result = done.result
from unnest($1::int2[], $2::bytea[], $3::int2[], $4::bytea[]) as done (consumer, key, outcome, result)
where inbox.consumer = done.consumer and inbox.key = done.key
-- @ inbox/unclaim.sql
delete from {schema}.inbox
using unnest($1::int2[], $2::bytea[]) as back (consumer, key)
where inbox.consumer = back.consumer and inbox.key = back.key
-- @ journal/add.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.journal (
    process, at, consumer, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause
)
select $2, clock.now - ago, consumer, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause
from
    clock,
    unnest(
        $3::int2[], $4::int8[], $5::bytea[], $6::int8[], $7::int2[], $8::int4[], $9::int2[], $10::int4[], $11::bytea[],
        $12::bytea[]
    ) with ordinality as entry (
        consumer, ago, key, id_hash, ended, attempt, was_parked, handler_millis, coordinate, cause, position
    )
order by position
-- @ journal/read.sql
(
    select
        by_key.at, by_key.consumer, by_key.key, by_key.process, by_key.ended, by_key.cause, by_key.attempt,
        by_key.was_parked, by_key.handler_millis, by_key.coordinate, by_key.id
    from unnest($4::bytea[]) as asked (key)
    cross join lateral (
        select * from {schema}.journal
        where journal.key = asked.key and ($2::int4 is null or journal.consumer = $2)
        order by journal.at desc
        limit $1
    ) as by_key
)
union
(
    select at, consumer, key, process, ended, cause, attempt, was_parked, handler_millis, coordinate, id
    from {schema}.journal
    where id_hash = $3::int8 and ($2::int4 is null or consumer = $2)
    order by at desc
    limit $1
)
order by at desc, id desc
limit $1
-- @ journal/sweep.sql
delete from {schema}.journal
where ctid = any (array(
    select ctid from {schema}.journal
    where consumer = $1 and at < $2
    order by at
    limit $3
    for update skip locked
))
-- @ lanes/check.sql
select lanes.lane from {schema}.lanes
join unnest($2::int4[], $3::int8[]) as held (lane, epoch) using (lane, epoch)
where lanes.queue = $1
order by lanes.lane
for key share of lanes
-- @ lanes/clear.sql
delete from {schema}.lanes where queue = $1
-- @ lanes/count.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select
    (select count(*) from {schema}.lanes where queue = $2),
    (select count(*) from {schema}.members where queue = $2 and expires_at > (select now from clock))
-- @ lanes/create.sql
insert into {schema}.lanes (queue, lane, epoch)
select queues.id, number.lane, queues.epoch from {schema}.queues, unnest($2::int4[]) as number (lane)
where queues.id = $1
on conflict do nothing
-- @ lanes/forget.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
gone as (
    select owner from {schema}.members
    where queue = $2 and expires_at <= (select now from clock)
    for update skip locked
)
delete from {schema}.members using gone where members.queue = $2 and members.owner = gone.owner
-- @ lanes/give_back.sql
update {schema}.lanes set owner = null, expires_at = 0
where queue = $1 and owner = $2 and lane = any($3::int4[])
-- @ lanes/join.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.members (queue, owner, expires_at)
select $2::int2, $3::bytea, now + $4::int8 from clock
on conflict (queue, owner) do update set expires_at = excluded.expires_at
-- @ lanes/leave.sql
update {schema}.lanes set owner = null, expires_at = 0 where queue = $1 and owner = $2
-- @ lanes/renew.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.lanes set expires_at = (select now from clock) + $4::int8
where queue = $2 and owner = $3 and expires_at > (select now from clock)
returning lane, epoch
-- @ lanes/resign.sql
delete from {schema}.members where queue = $1 and owner = $2
-- @ lanes/take.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
free as (
    select lane from {schema}.lanes
    where queue = $2 and (owner is null or expires_at <= (select now from clock)) and lane <> all ($6::int4[])
    order by lane
    limit $5
    for update skip locked
)
update {schema}.lanes set owner = $3, epoch = lanes.epoch + 1, expires_at = (select now from clock) + $4::int8
from free
where lanes.queue = $2 and lanes.lane = free.lane
returning lanes.lane, lanes.epoch
-- @ names/add_consumer.sql
insert into {schema}.consumers (id, name)
select coalesce(max(id), 0) + 1, $1 from {schema}.consumers
on conflict do nothing
-- @ names/add_queue.sql
insert into {schema}.queues (id, name)
select coalesce(max(id), 0) + 1, $1 from {schema}.queues
on conflict do nothing
-- @ names/find_consumer.sql
select id from {schema}.consumers where name = $1
-- @ names/find_queue.sql
select id, lanes from {schema}.queues where name = $1 for no key update
-- @ names/set_queue_lanes.sql
update {schema}.queues
set lanes = $2, epoch = greatest(epoch, (select max(lanes.epoch) from {schema}.lanes where lanes.queue = $1)) + 1
where id = $1
-- @ offsets/advance.sql
update {schema}.offsets as held set next = asked.next, witness = asked.witness
from unnest($2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) as asked (log, epoch, came, next, witness)
where held.consumer = $1 and held.log = asked.log and held.epoch = asked.epoch and held.next = asked.came
-- @ offsets/begin.sql
update {schema}.offsets as held set next = asked.next
from unnest($2::bytea[], $3::int8[], $4::int8[]) as asked (log, epoch, next)
where held.consumer = $1 and held.log = asked.log and held.epoch = asked.epoch and held.next is null
-- @ offsets/lock.sql
select asked.position - 1, held.next
from unnest($2::bytea[], $3::int8[]) with ordinality as asked (log, epoch, position)
join {schema}.offsets as held on held.consumer = $1 and held.log = asked.log and held.epoch = asked.epoch
order by asked.position
for update of held
-- @ offsets/take.sql
insert into {schema}.offsets as held (consumer, log, epoch)
select $1, asked.log, 1 from unnest($2::bytea[]) with ordinality as asked (log, position) order by asked.position
on conflict (consumer, log) do update set epoch = held.epoch + 1
returning log, epoch, next, witness
-- @ outbox/backlog.sql
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
-- @ outbox/delete.sql
delete from {schema}.outbox where seq = any($1::int8[]) and state + 0 in (0, 1)
-- @ outbox/emit.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.outbox (
    emitted_at,
    lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    clock.now,
    lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
from
    clock,
    unnest(
        $2::int4[], $3::int8[], $4::int8[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[],
        $10::bytea[], $11::int8[], $12::bytea[], $13::bytea[], $14::int8[], $15::int2[]
    ) with ordinality as message (
        lane, topic_hash, order_hash, key, topic, order_key, message_id, source, kind, version, headers, payload,
        made_at, made_at_nanos, position
    )
order by position
on conflict (key) where state <> 3 do nothing
returning key
-- @ outbox/fence.sql
select lanes.lane from {schema}.lanes
join unnest($2::int4[], $3::int8[]) as held (lane, epoch) using (lane, epoch)
where lanes.queue = (select id from {schema}.queues where name = $1)
order by lanes.lane
for key share of lanes
-- @ outbox/keep.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.outbox set state = 3, settled_at = (select now from clock), reason = null
where seq = any($2::int8[]) and state + 0 in (0, 1)
-- @ outbox/keep_lanes.sql
select lanes.lane from {schema}.lanes
where lanes.queue = (select id from {schema}.queues where name = $1)
    and lanes.lane in (select outbox.lane from {schema}.outbox where outbox.seq = any($2::int8[]))
order by lanes.lane
for key share of lanes
-- @ outbox/keep_out.sql
select lane from {schema}.lanes
where queue = (select id from {schema}.queues where name = $1) and lane = any($2::int4[])
order by lane
for update skip locked
-- @ outbox/page.sql
select
    seq, topic, reason, settled_at, order_key, message_id, source, kind, version, headers, payload, made_at,
    made_at_nanos
from {schema}.outbox
where state = 2 and seq > $1
order by seq
limit $2
-- @ outbox/pick.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as materialized (
    select lanes.lane, asked.after from {schema}.lanes
    join unnest($5::int4[], $6::int8[], $7::int8[]) as asked (lane, epoch, after) using (lane, epoch)
    where lanes.queue = (select id from {schema}.queues where name = $2)
        and lanes.expires_at > (select now from clock)
)
select unsent.seq, held.lane from held
cross join lateral (
    select outbox.seq from {schema}.outbox
    where outbox.state = 0 and outbox.lane = held.lane and outbox.seq > held.after
    order by outbox.seq
    limit $4
) as unsent
order by unsent.seq
limit $3
-- @ outbox/pick_without.sql
with recursive clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as materialized (
    select lanes.lane, asked.after from {schema}.lanes
    join unnest($5::int4[], $6::int8[], $7::int8[]) as asked (lane, epoch, after) using (lane, epoch)
    where lanes.queue = (select id from {schema}.queues where name = $2)
        and lanes.expires_at > (select now from clock)
),
topics (lane, after, topic_hash) as (
    select held.lane, held.after, (
        select outbox.topic_hash from {schema}.outbox
        where outbox.state = 0 and outbox.lane = held.lane
        order by outbox.topic_hash
        limit 1
    )
    from held
    union all
    select topics.lane, topics.after, (
        select outbox.topic_hash from {schema}.outbox
        where outbox.state = 0 and outbox.lane = topics.lane and outbox.topic_hash > topics.topic_hash
        order by outbox.topic_hash
        limit 1
    )
    from topics
    where topics.topic_hash is not null
)
select unsent.seq, topics.lane from topics
cross join lateral (
    select outbox.seq from {schema}.outbox
    where outbox.state = 0 and outbox.lane = topics.lane and outbox.topic_hash = topics.topic_hash
        and outbox.seq > topics.after
    order by outbox.seq
    limit $4
) as unsent
where topics.topic_hash <> all (array_remove($8::int8[], null))
order by unsent.seq
limit $3
-- @ outbox/read.sql
select
    outbox.seq, behind.waits, outbox.topic, outbox.order_key, outbox.message_id, outbox.source, outbox.kind,
    outbox.version, outbox.headers, case behind.waits when 0 then outbox.payload else '' end,
    outbox.made_at, outbox.made_at_nanos
from {schema}.outbox
cross join lateral (
    select case when outbox.order_hash is not null and exists (
        select from {schema}.outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = outbox.order_hash and earlier.seq < outbox.seq
            and earlier.topic = outbox.topic and earlier.order_key = outbox.order_key
    ) then 1 else 0 end as waits
    offset 0
) as behind
where outbox.seq = any($1::int8[]) and outbox.state + 0 = 0
order by outbox.seq
-- @ outbox/retry.sql
update {schema}.outbox set state = 0, settled_at = null, reason = null
where seq = any($1::int8[]) and state + 0 = 2
returning seq
-- @ outbox/set_aside.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.outbox
set state = 2, settled_at = (select now from clock), reason = convert_from(receipt.reason, 'UTF8')
from unnest($2::int8[], $3::bytea[]) as receipt (seq, reason)
where outbox.seq = receipt.seq and outbox.state in (0, 1)
-- @ outbox/set_behind.sql
update {schema}.outbox set state = 1
from (
    select later.seq from {schema}.outbox as later
    cross join lateral (
        select from {schema}.outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = later.order_hash and earlier.seq < later.seq
            and earlier.topic = later.topic and earlier.order_key = later.order_key
        order by earlier.order_hash, earlier.seq
        limit 1
    ) as blocking
    where later.seq = any($1::int8[]) and later.state + 0 = 0
    for update of later skip locked
) as behind
where outbox.seq = behind.seq
-- @ outbox/skip.sql
delete from {schema}.outbox where seq = any($1::int8[]) and state + 0 = 2
returning seq
-- @ outbox/sweep.sql
delete from {schema}.outbox
where state = 3 and seq = any (array(
    select seq from {schema}.outbox
    where state = 3 and settled_at < $1
    order by settled_at
    limit $2
    for update skip locked
))
-- @ outbox/wake_behind.sql
update {schema}.outbox set state = 0
from (
    select waiting.seq from (
        select order_hash, topic, order_key, min(seq) as seq from {schema}.outbox
        where seq = any($2::int8[]) and order_hash is not null
            -- Mostly nothing waits at all; then these rows need not be read.
            and (select seq from {schema}.outbox where state in (1, 2) order by state, seq limit 1) is not null
        group by order_hash, topic, order_key
    ) as gone
    cross join lateral (
        select later.seq from {schema}.outbox as later
        where later.state = 1 and later.order_hash = gone.order_hash and later.seq > gone.seq
            and later.topic = gone.topic and later.order_key = gone.order_key
        order by later.seq
        limit $1
        for update
    ) as waiting
) as woken
where outbox.seq = woken.seq and outbox.state + 0 = 1
-- @ parked/count_blocking.sql
select counted.rows
from unnest($3::int8[], $4::bytea[]) with ordinality as asked (order_hash, order_key, position)
cross join lateral (
    select count(*) as rows from (
        select from {schema}.parked
        where parked.consumer = $1 and parked.order_hash = asked.order_hash and parked.state <> 2
            and parked.order_key = asked.order_key
        limit $2
    ) as blocking
) as counted
order by asked.position
-- @ parked/count_gaps.sql
select count(*) from {schema}.parked
where consumer = $1 and order_hash = $2 and order_key = $3 and state = 2
-- @ parked/end.sql
delete from {schema}.parked
using unnest($1::int8[], $2::int4[]) as receipt (id, fence)
where parked.id = receipt.id and parked.fence = receipt.fence and parked.due_at is not null
returning parked.id, parked.consumer, case when parked.state <> 2 then parked.order_hash end, parked.order_key
-- @ parked/extend.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
ours as (
    select parked.id from {schema}.parked
    join unnest($3::int8[], $4::int4[]) as receipt (id, fence) using (id, fence)
    where parked.due_at is not null
    for update of parked skip locked
)
update {schema}.parked set due_at = (select now from clock) + $2::int8
from ours
where parked.id = ours.id
-- @ parked/find_behind.sql
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
-- @ parked/forget_starts.sql
with survived as (
    select starts.consumer, starts.key
    from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
    join {schema}.starts using (consumer, key)
    order by starts.consumer, starts.key
    for update of starts
)
delete from {schema}.starts
using survived
where starts.consumer = survived.consumer and starts.key = survived.key
-- @ parked/is_blocked.sql
select asked.position - 1
from unnest($2::int8[], $3::bytea[]) with ordinality as asked (order_hash, order_key, position)
cross join lateral (
    select from {schema}.parked
    where parked.consumer = $1 and parked.order_hash = asked.order_hash and parked.state <> 2
        and parked.order_key = asked.order_key
    limit 1
) as blocking
-- @ parked/keep_turns.sql
select pg_advisory_xact_lock_shared(hashtextextended('oncebox turns of {schema} ' || consumer, turn))
from (
    select distinct consumer, order_hash & 63 as turn
    from unnest($1::int2[], $2::int8[]) as gone (consumer, order_hash)
    offset 0
) as turns
-- @ parked/note_start.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.starts (consumer, key, starts, waits, at)
select $2::int2, $3::bytea, 1, 0, now from clock
on conflict (consumer, key) do update
set starts = case when $4::int4 > 1 and starts.waits = $4::int4 then 1 else starts.starts + 1 end,
    waits = 0, at = excluded.at
returning starts
-- @ parked/note_wait.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.starts (consumer, key, starts, waits, at)
select $2::int2, $3::bytea, 0, 1, now from clock
on conflict (consumer, key) do update set waits = starts.waits + 1, at = excluded.at
returning starts, waits
-- @ parked/park.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.parked (
    first_at, last_at, due_at, consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
    state, class, cause, reason, attempts,
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
)
select
    clock.now, clock.now, clock.now + delay, consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
    state, class, convert_from(cause, 'UTF8'), convert_from(reason, 'UTF8'), attempts,
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
from
    clock,
    unnest(
        $2::int2[], $3::bytea[], $4::int8[], $5::int2[], $6::int2[], $7::int8[], $8::bytea[],
        $9::int2[], $10::int8[], $11::int2[], $12::bytea[], $13::bytea[], $14::int4[],
        $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[], $19::int8[], $20::bytea[], $21::bytea[], $22::int8[],
        $23::int2[]
    ) with ordinality as message (
        consumer, key, fingerprint, scheme, owns_record, order_hash, order_key,
        state, delay, class, cause, reason, attempts,
        message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos, position
    )
order by position
on conflict (consumer, key, fingerprint, scheme) do nothing
returning consumer, key, fingerprint, scheme
-- @ parked/pick.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select parked.id from {schema}.parked
where parked.consumer = $2 and parked.behind = 0 and parked.due_at <= (select now from clock)
    and (parked.order_hash is null or parked.state = 2 or not exists (
        select from {schema}.parked as earlier
        where earlier.consumer = $2 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.order_key = parked.order_key
    ))
order by parked.due_at, parked.id
limit $3
for update of parked skip locked
-- @ parked/put_back.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set fence = (parked.fence / 1024 + 1) * 1024, state = verdict.state, behind = 0,
    due_at = (select now from clock) + verdict.delay,
    class = verdict.class, cause = convert_from(verdict.cause, 'UTF8'), reason = convert_from(verdict.reason, 'UTF8'),
    attempts = verdict.attempts, last_at = (select now from clock)
from unnest($2::int8[], $3::int4[], $4::int2[], $5::int8[], $6::int2[], $7::bytea[], $8::bytea[], $9::int4[])
    as verdict (id, fence, state, delay, class, cause, reason, attempts)
where parked.id = verdict.id and parked.fence = verdict.fence and parked.due_at is not null
returning parked.id, parked.consumer, case when parked.state = 2 then parked.order_hash end, parked.order_key
-- @ parked/release.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked set fence = (parked.fence / 1024 + 1) * 1024, behind = 0,
    due_at = (select now from clock) + $2::int8
from unnest($3::int8[], $4::int4[]) as receipt (id, fence)
where parked.id = receipt.id and parked.fence = receipt.fence and parked.due_at is not null
-- @ parked/set_behind.sql
update {schema}.parked set behind = 1
from (
    select due.id from {schema}.parked as due
    where due.id = any($1::int8[]) and due.behind = 0 and due.state <> 2 and exists (
        select from {schema}.parked as earlier
        where earlier.consumer = due.consumer and earlier.order_hash = due.order_hash and earlier.state <> 2
            and earlier.id < due.id and earlier.order_key = due.order_key
    )
    for update of due skip locked
) as behind
where parked.id = behind.id
-- @ parked/take.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set fence = parked.fence + 1, due_at = (select now from clock) + $2::int8
where parked.id = any($3::int8[])
returning
    parked.id, parked.fence, parked.owns_record, parked.attempts, parked.first_at,
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
-- @ parked/wake_gaps.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked set due_at = (select now from clock)
from unnest($3::int8[], $4::bytea[]) as woken (order_hash, order_key)
where parked.consumer = $2 and parked.order_hash = woken.order_hash and parked.order_key = woken.order_key
    and parked.state = 2 and parked.fence % 1024 = 0 and parked.due_at > (select now from clock)
-- @ parked/wake_next.sql
update {schema}.parked set behind = 0
from unnest($1::int8[], $2::int2[], $3::int8[], $4::bytea[]) as gone (id, consumer, order_hash, order_key)
cross join lateral (
    select waiting.id from {schema}.parked as waiting
    where waiting.consumer = gone.consumer and waiting.order_hash = gone.order_hash and waiting.state <> 2
        and waiting.id > gone.id and waiting.order_key = gone.order_key
    order by waiting.id
    limit 1
) as next
where parked.id = next.id and parked.behind = 1
-- @ quarantine/annotate.sql
update {schema}.parked set note = $1 where id = any($2::int8[])
returning id
-- @ quarantine/causes.sql
select cause, count(*), count(*) filter (where state = 3), min(first_at), max(last_at)
from {schema}.parked
where consumer = $1
group by cause
order by count(*) desc, cause
-- @ quarantine/delete.sql
delete from {schema}.parked where id = any($1::int8[])
returning id, consumer, case when state <> 2 then order_hash end, order_key
-- @ quarantine/find_records.sql
select asked.position - 1, inbox.consumer, inbox.fingerprint, inbox.scheme, inbox.outcome
from unnest($2::bytea[]) with ordinality as asked (key, position)
cross join lateral (
    select * from {schema}.inbox where inbox.consumer = $1 and inbox.key = asked.key
    union all
    select * from {schema}.inbox where inbox.consumer = 0 and $1 <> 0 and inbox.key = asked.key
) as inbox
-- @ quarantine/is_parked.sql
select id from {schema}.parked where consumer = $1 and key = $2 and fingerprint = $3 and scheme = $4
-- @ quarantine/lock_records.sql
select inbox.consumer, inbox.key
from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
join {schema}.inbox using (consumer, key)
where inbox.outcome = 4
order by inbox.consumer, inbox.key
for update of inbox skip locked
-- @ quarantine/lock_rows.sql
select id, consumer, key, fingerprint, scheme, owns_record, state
from {schema}.parked
where id = any($1::int8[])
order by id
for update skip locked
-- @ quarantine/page.sql
select
    parked.id, parked.consumer, parked.key, parked.fingerprint, parked.scheme, parked.owns_record, parked.order_key,
    parked.state, parked.due_at, parked.class, parked.cause, parked.reason, parked.attempts, parked.first_at,
    parked.last_at, parked.note, parked.replay, parked.supersedes,
    parked.state <> 2 and parked.order_hash is not null and exists (
        select 1 from {schema}.parked as earlier
        where earlier.consumer = $1 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id <= $2 and earlier.state = 3 and earlier.order_key = parked.order_key
    ),
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
from {schema}.parked
where parked.consumer = $1 and parked.id > $2
order by parked.id
limit $3
-- @ quarantine/read.sql
select
    parked.id, parked.consumer, parked.key, parked.fingerprint, parked.scheme, parked.owns_record, parked.order_key,
    parked.state, parked.due_at, parked.class, parked.cause, parked.reason, parked.attempts, parked.first_at,
    parked.last_at, parked.note, parked.replay, parked.supersedes,
    parked.state <> 2 and parked.order_hash is not null and exists (
        select 1 from {schema}.parked as earlier
        where earlier.consumer = parked.consumer and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.state = 3 and earlier.order_key = parked.order_key
    ),
    parked.message_order_key, parked.message_id, parked.source, parked.kind, parked.version, parked.headers,
    parked.payload, parked.made_at, parked.made_at_nanos
from {schema}.parked
where parked.id = $1
-- @ quarantine/refingerprint.sql
update {schema}.inbox set fingerprint = $3, scheme = $4
where consumer = $1 and key = $2 and outcome = 4
-- @ quarantine/reject.sql
update {schema}.inbox set outcome = 1, result = $1
from unnest($2::int2[], $3::bytea[]) as asked (consumer, key)
where inbox.consumer = asked.consumer and inbox.key = asked.key and inbox.outcome = 4
-- @ quarantine/revive.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set state = 0, behind = 0, due_at = (select now from clock), fence = parked.fence + 1, replay = $2
where id = any($3::int8[])
-- @ quarantine/supersede.sql
update {schema}.parked
set supersedes = $2, key = $3, fingerprint = $4, scheme = $5, owns_record = 1, replay = null, fence = parked.fence + 1,
    message_order_key = message.message_order_key, message_id = message.message_id, source = message.source,
    kind = message.kind, version = message.version, headers = message.headers, payload = message.payload,
    made_at = message.made_at, made_at_nanos = message.made_at_nanos
from unnest(
    $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::int8[], $11::bytea[], $12::bytea[], $13::int8[],
    $14::int2[]
) as message (
    message_order_key, message_id, source, kind, version, headers, payload, made_at, made_at_nanos
)
where parked.id = $1
-- @ quarantine/withdraw.sql
update {schema}.replays set withdrawn = replays.withdrawn + taken.messages
from (
    select replay, count(*) as messages from {schema}.parked
    where id = any($1::int8[]) and replay is not null
    group by replay
) as taken
where replays.id = taken.replay
-- @ queue/delete.sql
delete from {schema}.queue
using unnest($2::int8[], $3::int4[]) as receipt (id, fence)
where queue.id = receipt.id and queue.queue = $1 and queue.deliveries = receipt.fence and queue.visible_at is not null
-- @ queue/enqueue.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.queue (
    queue, visible_at, received_at,
    lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
)
select
    $2::int2, clock.now, clock.now,
    lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
    made_at, made_at_nanos
from
    clock,
    unnest(
        $3::int4[], $4::int8[], $5::bytea[], $6::int8[], $7::int2[], $8::bytea[], $9::bytea[],
        $10::bytea[], $11::bytea[], $12::int8[], $13::bytea[], $14::bytea[], $15::int8[], $16::int2[]
    ) with ordinality as message (
        lane, order_hash, key, fingerprint, scheme, order_key, message_id, source, kind, version, headers, payload,
        made_at, made_at_nanos, position
    )
order by position
on conflict (queue, key) where key is not null do nothing
returning key
-- @ queue/extend.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
ours as (
    select queue.id
    from {schema}.queue
    join unnest($5::int8[], $6::int4[], $7::int4[], $8::int8[]) as receipt (id, fence, lane, epoch)
        on queue.id = receipt.id and queue.deliveries = receipt.fence
    where queue.queue = $2 and queue.visible_at is not null
        and (receipt.lane is null or exists (
            select from {schema}.lanes
            where lanes.queue = $2 and lanes.lane = receipt.lane and lanes.epoch = receipt.epoch
        ))
    for update of queue skip locked
)
update {schema}.queue
set visible_at = (select now from clock) + $3::int8, error = coalesce($4, queue.error)
from ours
where queue.id = ours.id
-- @ queue/is_used.sql
select 1 from {schema}.queue where queue = $1 and visible_at is not null limit 1
-- @ queue/keep.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.queue
set visible_at = null, processed_at = (select now from clock), error = null
from unnest($3::int8[], $4::int4[]) as receipt (id, fence)
where queue.id = receipt.id and queue.queue = $2 and queue.deliveries = receipt.fence and queue.visible_at is not null
-- @ queue/lease.sql
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
-- @ queue/pick_in_lanes.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
held as (
    select lanes.lane from {schema}.lanes
    join unnest($4::int4[], $5::int8[]) as asked (lane, epoch) using (lane, epoch)
    where lanes.queue = $2 and lanes.expires_at > (select now from clock)
    for key share of lanes
)
select queue.id from {schema}.queue
where queue.queue = $2 and queue.lane in (select lane from held) and queue.visible_at <= (select now from clock)
    and not exists (
        select from {schema}.queue as earlier
        where earlier.queue = queue.queue and earlier.order_hash = queue.order_hash
            and earlier.visible_at > (select now from clock) and earlier.lane is not null
            and earlier.id < queue.id and earlier.order_key = queue.order_key
    )
order by queue.id
limit $3
for update of queue
-- @ queue/read_keys.sql
select key, fingerprint, scheme from {schema}.queue where queue = $1 and key = any($2::bytea[])
-- @ queue/release.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
ours as (
    select queue.id
    from {schema}.queue
    join unnest($5::int8[], $6::int4[], $7::int4[], $8::int8[]) as receipt (id, fence, lane, epoch)
        on queue.id = receipt.id and queue.deliveries = receipt.fence
    where queue.queue = $2 and queue.visible_at is not null
        and (receipt.lane is null or exists (
            select from {schema}.lanes
            where lanes.queue = $2 and lanes.lane = receipt.lane and lanes.epoch = receipt.epoch
        ))
    for update of queue
)
update {schema}.queue
set visible_at = (select now from clock) + $3::int8, error = coalesce($4, queue.error)
from ours
where queue.id = ours.id
-- @ queue/take_picked.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.queue
set deliveries = queue.deliveries + 1, visible_at = (select now from clock) + $3::int8
where queue.id = any($4::int8[]) and queue.queue = $2 and queue.visible_at <= (select now from clock)
    and not exists (
        select from {schema}.queue as earlier
        where earlier.queue = queue.queue and earlier.order_hash = queue.order_hash
            and earlier.visible_at > (select now from clock) and earlier.lane is not null
            and earlier.id < queue.id and earlier.order_key = queue.order_key
    )
returning
    queue.id, queue.deliveries, queue.lane, queue.order_key, queue.message_id, queue.source, queue.kind,
    queue.version, queue.headers, queue.payload, queue.made_at, queue.made_at_nanos
-- @ replays/create.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
insert into {schema}.replays (
    consumer, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, canary_passed, who, why,
    created_at, changed_at
)
select $2::int2, $3, $4::int8, $5::int8, $6, $7, $8, $9, $10, $11, $12, $13, now, now from clock
returning id
-- @ replays/hold.sql
update {schema}.replays set fence = $2, held_until = $3 where id = $1
-- @ replays/let_go.sql
update {schema}.replays set held_until = null where id = $1 and fence = $2
-- @ replays/list.sql
select
    0,
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from {schema}.replays
where $1::int4 is null or consumer = $1
order by id desc
limit $2
-- @ replays/on_their_way.sql
select count(*) filter (where state <> 3 and not held_up), count(*) filter (where state <> 3 and held_up),
    count(*) filter (where state = 3)
from (
    select parked.state, parked.state <> 2 and parked.order_hash is not null and exists (
        select from {schema}.parked as earlier
        where earlier.consumer = $1 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.state = 3 and earlier.order_key = parked.order_key
    ) as held_up
    from {schema}.parked
    where parked.replay = $2 and parked.consumer = $1
) as revived
-- @ replays/open.sql
select
    0,
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from {schema}.replays
where state < 3 and ($1::int4 is null or consumer = $1)
order by id desc
limit $2
-- @ replays/read.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
select
    (select now from clock),
    id, consumer, state, filter, as_of, last_row, canary, rate, in_flight_max, stop_permille, forced, looked_at, revived,
    refused, held_up, moving, withdrawn, canary_passed, base_revived, base_done, base_failed, fence, held_until,
    created_at, changed_at, stop_reason, who, why
from {schema}.replays
where id = $2
for update of replays
-- @ replays/save.sql
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.replays
set changed_at = (select now from clock), state = $3, stop_reason = $4, looked_at = $5, revived = $6, refused = $7,
    held_up = $8, moving = $9, canary_passed = $10, base_revived = $11, base_done = $12, base_failed = $13
where id = $2
-- @ replays/sweep.sql
delete from {schema}.replays
where id = any (array(
    select id from {schema}.replays
    where state in (3, 4) and changed_at < $1
        and not exists (select from {schema}.parked where parked.replay = replays.id)
    limit $2
    for update of replays skip locked
))
-- @ trail/beyond.sql
select
    exists (select from {schema}.queue order by id desc limit 1 offset $1)::int4,
    exists (select from {schema}.parked order by id desc limit 1 offset $1)::int4,
    exists (select from {schema}.outbox order by seq desc limit 1 offset $1)::int4
-- @ trail/outbox_after.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from {schema}.outbox
where seq > $2 and state <> 3
order by seq
limit $1
-- @ trail/outbox_by_cause.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from (select * from {schema}.outbox order by seq desc limit $3) as newest
where headers is not null and position($2 in headers) > 0
order by seq
limit $1
-- @ trail/outbox_by_id.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload) from {schema}.outbox where state <> 3 and key = $2
union all
select * from (
    select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
    from (select * from {schema}.outbox order by seq desc limit $4) as newest
    where state = 3 and message_id = $3
) as sent
order by seq
limit $1
-- @ trail/outbox_row.sql
select seq, state, topic, message_id, kind, order_key, emitted_at, settled_at, reason, length(payload)
from {schema}.outbox
where seq = $2
limit $1
-- @ trail/parked_by_id.sql
select id
from (select id, message_id from {schema}.parked order by id desc limit $3) as newest
where message_id = $2
order by id
limit $1
-- @ trail/parked_by_key.sql
select parked.id
from unnest($2::bytea[]) as asked (key)
cross join {schema}.consumers
cross join lateral (
    select id from {schema}.parked where parked.consumer = consumers.id and parked.key = asked.key
) as parked
order by parked.id
limit $1
-- @ trail/queued.sql
select queues.name, queue.id, queue.kind, queue.source, queue.received_at, queue.visible_at, queue.deliveries, queue.error
from (
    select id, queue, message_id, kind, source, received_at, visible_at, deliveries, error
    from {schema}.queue order by id desc limit $3
) as queue
join {schema}.queues on queues.id = queue.queue
where queue.message_id = $2
order by queue.id
limit $1
-- @ trail/records.sql
select
    inbox.consumer, inbox.key, inbox.outcome, (extract(epoch from inbox.processed_at) * 1000000)::int8,
    case inbox.outcome when 1 then inbox.result end
from unnest($1::bytea[]) as asked (key)
cross join {schema}.consumers
cross join lateral (
    select * from {schema}.inbox where inbox.consumer = consumers.id and inbox.key = asked.key
) as inbox
order by inbox.consumer
-- @ versions/add.sql
insert into {schema}.versions as version (consumer, aggregate)
select $1, asked.aggregate from unnest($2::bytea[]) with ordinality as asked (aggregate, position) order by asked.position
on conflict (consumer, aggregate) do update set version = version.version
returning aggregate, version
-- @ versions/advance.sql
update {schema}.versions as version set version = asked.version
from unnest($2::bytea[], $3::int8[]) as asked (aggregate, version)
where version.consumer = $1 and version.aggregate = asked.aggregate
-- @ versions/lock.sql
select asked.position - 1, version.version
from unnest($2::bytea[]) with ordinality as asked (aggregate, position)
join {schema}.versions as version on version.consumer = $1 and version.aggregate = asked.aggregate
order by asked.position
for update of version
-- @ versions/read.sql
select asked.position - 1, version.version
from unnest($2::bytea[]) with ordinality as asked (aggregate, position)
join {schema}.versions as version on version.consumer = $1 and version.aggregate = asked.aggregate
