-- Blocks of a consumer after block $2 with something that was handled at $3 or later (index oncebox_archive_consumer).
select id, first_at, last_at, scheme, hashes from oncebox_archive
where consumer = $1 and id > $2 and last_at >= $3
order by id
limit $4
