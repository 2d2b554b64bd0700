create schema if not exists {schema};
create table if not exists {schema}.migrations (
    version int4 primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);
