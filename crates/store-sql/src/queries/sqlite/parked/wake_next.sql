-- Lets leases look at the row that follows each of these in its order key (index oncebox_parked_blocking, one look for
-- each: a cross join keeps its order): it may be the first now.
update oncebox_parked set behind = 0
where behind = 1 and id in (
    select (
        select waiting.id from oncebox_parked as waiting
        where waiting.consumer = gone.value ->> 1 and waiting.order_hash = gone.value ->> 2 and waiting.state <> 2
            and waiting.id > gone.value ->> 0 and waiting.order_key = unhex(gone.value ->> 3)
        order by waiting.id
        limit 1
    )
    from json_each($1) as gone
)
