create table if not exists oncebox_migrations (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied_at text not null default current_timestamp
) strict;
