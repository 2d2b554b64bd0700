-- How much of a consumer is archived (primary key). Reads a row for each step, and no hash.
select coalesce(sum(keys), 0)::int8, min(first_at) from {schema}.archive where consumer = $1
