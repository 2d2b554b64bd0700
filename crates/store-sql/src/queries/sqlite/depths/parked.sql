-- How many messages of a consumer are parked, of the oldest $2: those that go on by themselves and those that wait for a
-- person (index oncebox_parked_paging).
select count(*) filter (where state <> 3), count(*) filter (where state = 3)
from (select state from oncebox_parked where consumer = $1 order by id limit $2)
