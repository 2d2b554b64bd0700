-- Moves a horizon, forward only (primary key).
update {schema}.consumers set horizon = greatest(horizon, $2::int8) where id = $1
returning horizon
