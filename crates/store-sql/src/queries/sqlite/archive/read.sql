-- Blocks of a consumer after block $2 (index oncebox_archive_consumer).
select id, first_at, last_at, scheme, hashes from oncebox_archive
where consumer = $1 and id > $2
order by id
limit $3
