-- Moves a horizon, forward only (primary key). Null reads it.
update {schema}.consumers set horizon = greatest(coalesce(horizon, $2::int8), coalesce($2::int8, horizon)) where id = $1
returning horizon
