-- Whether migrations were ever applied.
select 1 from sqlite_schema where type = 'table' and name = 'oncebox_migrations' and $1 is not null
