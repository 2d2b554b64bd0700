-- Sets rows aside that the broker refused (primary key).
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now)
update {schema}.outbox
set state = 2, settled_at = (select now from clock), reason = convert_from(receipt.reason, 'UTF8')
from unnest($2::int8[], $3::bytea[]) as receipt (seq, reason)
where outbox.seq = receipt.seq and outbox.state in (0, 1)
