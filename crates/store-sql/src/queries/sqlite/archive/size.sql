-- How much of a consumer is archived (index oncebox_archive_consumer). Reads a row for each step, and no hash.
select coalesce(sum(keys), 0), min(first_at) from oncebox_archive where consumer = $1
