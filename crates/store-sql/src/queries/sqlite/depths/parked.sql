-- How many messages of a consumer are parked, each count up to $2: those that go on by themselves, which can be leased
-- (index oncebox_parked_due) or stand behind another (oncebox_parked_behind), and those that wait for a person
-- (oncebox_parked_dead and oncebox_parked_given_up). Each has its own bound: many of one kind never hide the others.
select
    (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_due
            where consumer = $1 and due_at is not null and behind = 0
            limit $2
        )
    ),
    (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_behind
            where consumer = $1 and behind = 1 and state <> 3
            limit $2
        )
    ),
    (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_dead
            where consumer = $1 and state = 3
            limit $2
        )
    ) + (
        select count(*) from (
            select 1 from oncebox_parked indexed by oncebox_parked_given_up
            where consumer = $1 and state = 2 and due_at is null
            limit $2
        )
    )
