-- Puts rows back that are still in hand under these fences, with what is known now (primary key). Fewer than asked for:
-- one has a new owner. Without a delay a row is dead. The plus sign keeps the planner off the index of due rows.
-- A row that was there before its record owns that from now on (oncebox_inbox, primary key): whoever records that it is
-- parked has done so before, in this transaction. What begins or ends to wait for a version gets another order key; what
-- had none before has none again. What goes on waiting for one as it did keeps the time of its verdict.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_parked
set fence = (oncebox_parked.fence / 1024 + 1) % 2097152 * 1024, state = value ->> 2, behind = 0,
    due_at = (select now from clock) + (value ->> 3),
    order_hash = case
        when apart = 1 and state = 2 and value ->> 2 <> 2 then null
        when 2 in (state, value ->> 2) then value ->> 8
        else order_hash
    end,
    order_key = case
        when apart = 1 and state = 2 and value ->> 2 <> 2 then null
        when 2 in (state, value ->> 2) then unhex(value ->> 9)
        else order_key
    end,
    apart = case
        when value ->> 2 <> 2 then 0
        when state = 2 then apart
        when order_hash is null then 1
        else 0
    end,
    class = value ->> 4, cause = cast(unhex(value ->> 5) as text), reason = cast(unhex(value ->> 6) as text),
    attempts = value ->> 7,
    last_at = case
        when state = 2 and value ->> 2 = 2 and class is value ->> 4 and reason = cast(unhex(value ->> 6) as text) then last_at
        else (select now from clock)
    end,
    owns_record = case when exists (
        select 1 from oncebox_inbox as inbox
        where inbox.consumer = oncebox_parked.consumer and inbox.key = oncebox_parked.key and inbox.outcome = 4
            and inbox.fingerprint = oncebox_parked.fingerprint and inbox.scheme = oncebox_parked.scheme
    ) then 1 else oncebox_parked.owns_record end
from json_each($2) as verdict
where oncebox_parked.id = verdict.value ->> 0 and oncebox_parked.fence = verdict.value ->> 1
    and +oncebox_parked.due_at is not null
