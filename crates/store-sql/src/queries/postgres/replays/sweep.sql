-- Removes replays that ended long ago, a bounded number at a time, unless a parked message names one (index
-- parked_replay). There are few replays.
delete from {schema}.replays
where id = any (array(
    select id from {schema}.replays
    where state in (3, 4) and changed_at < $1
        and not exists (select from {schema}.parked where parked.replay = replays.id)
    limit $2
    for update of replays skip locked
))
