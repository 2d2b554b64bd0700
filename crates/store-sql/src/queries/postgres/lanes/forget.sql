-- Forgets members that are gone. Those that someone else is just forgetting are passed over.
with clock as (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now),
gone as (
    select owner from {schema}.members
    where queue = $2 and expires_at <= (select now from clock)
    for update skip locked
)
delete from {schema}.members using gone where members.queue = $2 and members.owner = gone.owner
