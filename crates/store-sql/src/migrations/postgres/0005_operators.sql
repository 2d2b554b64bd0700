-- The time of the newest record that was deleted, in microseconds since 1970: older messages can't be told from
-- duplicates any more. Null: none was ever deleted.
alter table {schema}.consumers add column horizon int8;

-- What a replay has revived. `parked.supersedes` names the entry in `audit` that tells what an edit changed.
create index parked_replay on {schema}.parked (replay) where replay is not null;

-- Replays, durable so that another process can carry one on. `state`: 0 running, 1 paused, 2 stopped by itself,
-- 3 cancelled, 4 done. `looked_at` is the last row of `parked` that was looked at, `last_row` the last that takes part.
-- `fence` is raised each time that a replay changes hands. Times are microseconds since 1970.
create table {schema}.replays (
    id int8 generated always as identity primary key,
    as_of int8 not null,
    last_row int8 not null,
    looked_at int8 not null default 0,
    revived int8 not null default 0,
    refused int8 not null default 0,
    held_up int8 not null default 0,
    moving int8 not null default 0,
    withdrawn int8 not null default 0,
    base_revived int8 not null default 0,
    base_done int8 not null default 0,
    base_failed int8 not null default 0,
    created_at int8 not null,
    changed_at int8 not null,
    held_until int8,
    fence int4 not null default 0,
    canary int4 not null,
    rate int4,
    in_flight_max int4 not null,
    consumer int2 not null,
    state int2 not null default 0,
    stop_permille int2 not null,
    forced int2 not null,
    canary_passed int2 not null,
    filter text not null,
    stop_reason text,
    who text not null,
    why text not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Who did what, when and why. Entries are added and never changed.
create table {schema}.audit (
    id int8 generated always as identity primary key,
    at int8 not null,
    replay int8,
    messages int8 not null,
    consumer int2,
    verb text not null,
    who text not null,
    why text not null,
    detail text not null
);
create function {schema}.audit_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is append-only';
end
$$;
create trigger audit_is_append_only before update or delete or truncate on {schema}.audit
    for each statement execute function {schema}.audit_is_append_only();
