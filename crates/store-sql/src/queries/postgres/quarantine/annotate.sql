-- Sets the note of rows (primary key). Returns those that are there.
update {schema}.parked set note = $1 where id = any($2::int8[])
returning id
