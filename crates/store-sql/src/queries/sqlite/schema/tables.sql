-- The tables that are there.
select name from sqlite_schema where type = 'table' and $1 is not null
