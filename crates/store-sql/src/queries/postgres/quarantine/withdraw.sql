-- Notes in the replays that revived these rows that somebody else has taken them (primary keys).
update {schema}.replays set withdrawn = replays.withdrawn + taken.messages
from (
    select replay, count(*) as messages from {schema}.parked
    where id = any($1::int8[]) and replay is not null
    group by replay
) as taken
where replays.id = taken.replay
