-- Gives the database its identity, once.
insert into {schema}.meta (name, value) values ('identity', $1) on conflict (name) do nothing
