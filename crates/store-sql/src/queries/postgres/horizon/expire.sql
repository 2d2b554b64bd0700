-- Deletes old records, a bounded number at a time, never one of a key under which a message is parked (index parked_once;
-- for the records that consumers share, of any consumer). Records that somebody holds are passed over.
-- It reads 256 pages of the table, from page $4 on: a pass costs what it reads, whatever lies dead at the beginning of the
-- table. Once space is used again, records do not lie in the order of time any more, and the index inbox_processed_at
-- can't lead to the old ones. The plus signs keep the planner off indexes.
delete from {schema}.inbox
where ctid = any (array(
    select inbox.ctid from {schema}.inbox
    where inbox.ctid >= format('(%s,0)', $4::int8)::tid and inbox.ctid < format('(%s,0)', $4::int8 + 256)::tid
        and inbox.consumer + 0 = $1 and inbox.outcome <> 4
        and inbox.processed_at + interval '0' < timestamptz 'epoch' + $2::int8 * interval '1 microsecond'
        and not exists (
            select from {schema}.parked where parked.consumer = inbox.consumer and parked.key = inbox.key
        )
        and not ($1::int2 = 0 and exists (
            select from {schema}.consumers
            join {schema}.parked on parked.consumer = consumers.id and parked.key = inbox.key
        ))
    limit $3
    for update of inbox skip locked
))
returning (extract(epoch from processed_at) * 1000000)::int8, key
