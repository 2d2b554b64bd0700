-- Puts rows back that are still in hand under these fences, with what is known now (primary key). Fewer than asked for:
-- one has a new owner. Without a delay a row is dead. A row that was there before its record owns that from now on
-- (inbox, primary key): whoever records that it is parked has done so before, in this transaction. What begins or ends to
-- wait for a version gets another order key; what had none before has none again. What goes on waiting for one as it did
-- keeps the time of its verdict.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.parked
set fence = (parked.fence / 1024 + 1) % 2097152 * 1024, state = verdict.state, behind = 0,
    due_at = (select now from clock) + verdict.delay,
    order_hash = case
        when parked.apart = 1 and parked.state = 2 and verdict.state <> 2 then null
        when 2 in (parked.state, verdict.state) then verdict.order_hash
        else parked.order_hash
    end,
    order_key = case
        when parked.apart = 1 and parked.state = 2 and verdict.state <> 2 then null
        when 2 in (parked.state, verdict.state) then verdict.order_key
        else parked.order_key
    end,
    apart = case
        when verdict.state <> 2 then 0
        when parked.state = 2 then parked.apart
        when parked.order_hash is null then 1
        else 0
    end,
    class = verdict.class, cause = convert_from(verdict.cause, 'UTF8'), reason = convert_from(verdict.reason, 'UTF8'),
    attempts = verdict.attempts,
    last_at = case
        when parked.state = 2 and verdict.state = 2 and parked.class is not distinct from verdict.class
            and parked.reason = convert_from(verdict.reason, 'UTF8') then parked.last_at
        else (select now from clock)
    end,
    owns_record = case when exists (
        select from {schema}.inbox
        where inbox.consumer = parked.consumer and inbox.key = parked.key and inbox.outcome = 4
            and inbox.fingerprint = parked.fingerprint and inbox.scheme = parked.scheme
    ) then 1 else parked.owns_record end
from unnest($2::int8[], $3::int4[], $4::int2[], $5::int8[], $6::int2[], $7::bytea[], $8::bytea[], $9::int4[],
    $10::int8[], $11::bytea[]
) as verdict (id, fence, state, delay, class, cause, reason, attempts, order_hash, order_key)
where parked.id = verdict.id and parked.fence = verdict.fence and parked.due_at is not null
