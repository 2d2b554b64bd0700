-- Forgets starts (primary key), locked in the order of the keys, so that two batches do not deadlock.
with survived as (
    select starts.consumer, starts.key
    from unnest($1::int2[], $2::bytea[]) as asked (consumer, key)
    join {schema}.starts using (consumer, key)
    order by starts.consumer, starts.key
    for update of starts
)
delete from {schema}.starts
using survived
where starts.consumer = survived.consumer and starts.key = survived.key
