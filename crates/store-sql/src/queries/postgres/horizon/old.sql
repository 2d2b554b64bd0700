-- How many records of a consumer are older than $2, counted in 2,000 pages of the table, which is all of a small one; the
-- oldest among them; and how many of all stay because a message is parked under their key, up to $3 (indexes
-- parked_paging and the primary key).
with share as (
    select least(100, 100.0 * 2000
        / greatest(1, pg_relation_size('{schema}.inbox') / current_setting('block_size')::int8)) as percent
), seen as (
    select count(*) as records, min(processed_at) as oldest
    from {schema}.inbox tablesample system (least(100, 100.0 * 2000
        / greatest(1, pg_relation_size('{schema}.inbox') / current_setting('block_size')::int8))) repeatable (1)
    where consumer = $1 and processed_at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
), held as (
    select count(distinct key) as records from (
        select parked.key from {schema}.parked
        join {schema}.inbox on inbox.consumer = $1 and inbox.key = parked.key
        where (parked.consumer = $1 or $1::int2 = 0)
            and inbox.processed_at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
        limit $3
    ) as parked_keys
)
select (seen.records * 100 / share.percent)::int8, (share.percent = 100)::int4,
    (extract(epoch from seen.oldest) * 1000000)::int8, held.records
from share, seen, held
