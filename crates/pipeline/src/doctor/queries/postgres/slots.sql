-- Replication slots that keep rows from vacuum, with the number of transactions since; the oldest first. What a slot keeps
-- in the catalogs alone (catalog_xmin) does not concern tables.
select slot_name::text, age(xmin)::int8, active from pg_replication_slots
where xmin is not null
order by 2 desc
limit 100
