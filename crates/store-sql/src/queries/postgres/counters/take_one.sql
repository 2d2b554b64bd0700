-- Takes away the rows of a process that ends (primary key).
delete from {schema}.counters where process = $1 returning part, body, seen_at
