-- Notes in the replays that revived these rows that somebody else has taken them (primary keys).
update oncebox_replays set withdrawn = withdrawn + taken.messages
from (
    select replay, count(*) as messages from oncebox_parked
    where id in (select value ->> 0 from json_each($1)) and +replay is not null
    group by replay
) as taken
where oncebox_replays.id = taken.replay
