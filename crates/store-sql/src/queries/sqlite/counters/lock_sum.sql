-- What the sums hold (primary key). The transaction is the only one that writes.
select part, body, seen_at from oncebox_counters where process = $1 order by part
