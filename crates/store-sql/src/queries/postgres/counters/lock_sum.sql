-- What the sums hold, kept until this transaction ends: two who add up at once do so one after another (primary key).
select part, body, seen_at from {schema}.counters where process = $1 order by part for update
