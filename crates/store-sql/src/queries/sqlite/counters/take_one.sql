-- Takes away the rows of a process that ends (primary key).
delete from oncebox_counters where process = $1 returning part, body, seen_at
