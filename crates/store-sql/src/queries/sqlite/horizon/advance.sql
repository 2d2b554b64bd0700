-- Moves a horizon, forward only (primary key). Null reads it.
update oncebox_consumers set horizon = max(coalesce(horizon, $2), coalesce($2, horizon)) where id = $1
returning horizon
