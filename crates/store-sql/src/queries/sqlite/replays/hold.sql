-- Holds a replay that was locked before, until its lease ends (primary key). Null: nobody holds it.
update oncebox_replays set fence = $2, held_until = $3 where id = $1
