-- Marks rows as sent (primary key). One that is marked already was marked by us: the lane is ours.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.outbox set state = 3, settled_at = (select now from clock), reason = null
from unnest($2::int8[], $3::int4[]) as receipt (seq, lane)
where outbox.seq = receipt.seq and outbox.lane = receipt.lane and outbox.state in (0, 1)
