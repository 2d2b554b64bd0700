-- The time by which records are old.
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)
