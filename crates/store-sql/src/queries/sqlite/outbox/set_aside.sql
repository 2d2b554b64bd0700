-- Sets rows aside that the broker refused (primary key).
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_outbox
set state = 2, settled_at = (select now from clock), reason = cast(unhex(receipt.value ->> 1) as text)
from json_each($2) as receipt
where oncebox_outbox.seq = receipt.value ->> 0 and +oncebox_outbox.state in (0, 1)
