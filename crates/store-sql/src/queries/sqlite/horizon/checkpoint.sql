-- Sets a checkpoint, forward only (primary key). No row: there is a later one.
update oncebox_consumers set checkpoint = $2 where id = $1 and (checkpoint is null or checkpoint <= $2)
returning checkpoint
