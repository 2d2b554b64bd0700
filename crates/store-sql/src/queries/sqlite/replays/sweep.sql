-- Removes replays that ended long ago, a bounded number at a time, unless a parked message names one (index
-- oncebox_parked_replay). There are few replays.
delete from oncebox_replays
where id in (
    select id from oncebox_replays as old
    where state in (3, 4) and changed_at < $1
        and not exists (select 1 from oncebox_parked as parked where parked.replay = old.id)
    limit $2
)
