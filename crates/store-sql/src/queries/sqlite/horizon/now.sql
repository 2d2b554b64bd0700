-- The time by which records are old.
select coalesce($1, cast(unixepoch('subsec') * 1000000 as integer))
