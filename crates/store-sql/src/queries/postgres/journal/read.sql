-- The newest entries under these keys, or of this id, whoever's they are or of one consumer (indexes journal_key and
-- journal_id). Locks nothing.
(
    select
        by_key.at, by_key.consumer, by_key.key, by_key.process, by_key.ended, by_key.cause, by_key.attempt,
        by_key.was_parked, by_key.handler_millis, by_key.coordinate, by_key.id
    from unnest($4::bytea[]) as asked (key)
    cross join lateral (
        select * from {schema}.journal
        where journal.key = asked.key and ($2::int4 is null or journal.consumer = $2)
        order by journal.at desc
        limit $1
    ) as by_key
)
union
(
    select at, consumer, key, process, ended, cause, attempt, was_parked, handler_millis, coordinate, id
    from {schema}.journal
    where id_hash = $3::int8 and ($2::int4 is null or consumer = $2)
    order by at desc
    limit $1
)
order by at desc, id desc
limit $1
