-- Blocks of a consumer after block $2 with something that was handled at $3 or later (primary key; hashes of the others
-- are not read).
select id, first_at, last_at, scheme, hashes from {schema}.archive
where consumer = $1 and id > $2 and last_at >= $3
order by id
limit $4
