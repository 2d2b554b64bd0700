-- Gives back lanes that we hold. The epoch stays and is raised by whoever takes the lane next.
update {schema}.lanes set owner = null, expires_at = 0
where queue = $1 and owner = $2 and lane = any($3::int4[])
