-- Sets rows aside that stand behind an earlier one of their order key (primary key, index parked_blocking), as this
-- statement sees it, which begins with their turns held. Those that somebody holds are passed over.
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
