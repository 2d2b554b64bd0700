-- Ends rows that were sent (primary key). One that is gone already was ended by us: the lane is ours.
delete from {schema}.outbox
using unnest($1::int8[], $2::int4[]) as receipt (seq, lane)
where outbox.seq = receipt.seq and outbox.lane = receipt.lane and outbox.state in (0, 1)
