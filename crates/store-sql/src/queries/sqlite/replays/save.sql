-- Stores how far a replay is (primary key). What others withdraw from it, they count themselves.
with clock as materialized (select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer)) as now)
update oncebox_replays
set changed_at = (select now from clock), state = $3, stop_reason = $4, looked_at = $5, revived = $6, refused = $7,
    held_up = $8, moving = $9, canary_passed = $10, base_revived = $11, base_done = $12, base_failed = $13
where id = $2
