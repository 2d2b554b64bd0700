-- Waits until no lease is just setting rows of these order keys aside, and lets none begin before this transaction has
-- ended. Else one that still sees the row which we take away would set aside the next one after we have woken it, and
-- nobody would wake that again. Shared: those who take rows away do not wait for each other. Order keys share 64 locks.
select pg_advisory_xact_lock_shared(hashtextextended('oncebox turns of {schema} ' || consumer, turn))
from (
    select distinct consumer, order_hash & 63 as turn
    from unnest($1::int2[], $2::int8[]) as gone (consumer, order_hash)
    offset 0
) as turns
