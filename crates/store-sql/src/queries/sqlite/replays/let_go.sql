-- Lets go of a replay that is still held under this fence (primary key).
update oncebox_replays set held_until = null where id = $1 and fence = $2
