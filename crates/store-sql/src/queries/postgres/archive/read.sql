-- Blocks of a consumer after block $2 (primary key).
select id, first_at, last_at, scheme, hashes from {schema}.archive
where consumer = $1 and id > $2
order by id
limit $3
