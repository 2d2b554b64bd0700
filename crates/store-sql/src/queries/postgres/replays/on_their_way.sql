-- Where the messages are that a replay revived (index parked_replay): on their way, behind a dead one of their order
-- key (index parked_blocking), or dead again.
select count(*) filter (where not dead and not held_up), count(*) filter (where not dead and held_up),
    count(*) filter (where dead)
from (
    select parked.due_at is null as dead, parked.state <> 2 and parked.order_hash is not null and exists (
        select from {schema}.parked as earlier
        where earlier.consumer = $1 and earlier.order_hash = parked.order_hash and earlier.state <> 2
            and earlier.id < parked.id and earlier.state = 3 and earlier.order_key = parked.order_key
    ) as held_up
    from {schema}.parked
    where parked.replay = $2 and parked.consumer = $1
) as revived
