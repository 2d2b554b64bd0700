-- Moves a horizon, forward only (primary key).
update oncebox_consumers set horizon = max(coalesce(horizon, $2), $2) where id = $1
returning horizon
