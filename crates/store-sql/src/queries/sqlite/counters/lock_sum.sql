-- What the sums hold (primary key). The transaction is the only one that writes.
select part, body from oncebox_counters where process = $1 order by part
