-- How many messages of a consumer are parked, each count up to $2: those that go on by themselves, which can be leased
-- (index parked_due) or stand behind another (parked_behind), and those that wait for a person (parked_dead and
-- parked_given_up). Each has its
-- own bound: many of one kind never hide the others. The orders ask for the indexes.
select
    (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and due_at is not null and behind = 0 order by due_at limit $2
        ) as due
    ),
    (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and behind = 1 and state <> 3 order by first_at limit $2
        ) as behind
    ),
    (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and state = 3 order by last_at limit $2
        ) as dead
    ) + (
        select count(*) from (
            select from {schema}.parked where consumer = $1 and state = 2 and due_at is null order by last_at limit $2
        ) as given_up
    )
