-- The time of the newest record that was deleted, in microseconds since 1970: older messages can't be told from
-- duplicates any more. Null: none was ever deleted.
alter table oncebox_consumers add column horizon integer;

-- What a replay has revived. `oncebox_parked.supersedes` names the entry in `oncebox_audit` that tells what an edit
-- changed.
create index oncebox_parked_replay on oncebox_parked (replay) where replay is not null;

-- Retention asks for the oldest records of a consumer.
create index oncebox_inbox_processed_at on oncebox_inbox (consumer, processed_at);

-- Replays, durable so that another process can carry one on. `state`: 0 running, 1 paused, 2 stopped by itself,
-- 3 cancelled, 4 done. `looked_at` is the last row of `oncebox_parked` that was looked at, `last_row` the last that
-- takes part. `fence` is raised each time that a replay changes hands. Times are microseconds since 1970.
create table oncebox_replays (
    id integer primary key autoincrement,
    consumer integer not null,
    state integer not null default 0,
    filter text not null,
    as_of integer not null,
    last_row integer not null,
    canary integer not null,
    rate integer,
    in_flight_max integer not null,
    stop_permille integer not null,
    forced integer not null,
    looked_at integer not null default 0,
    revived integer not null default 0,
    refused integer not null default 0,
    held_up integer not null default 0,
    moving integer not null default 0,
    withdrawn integer not null default 0,
    canary_passed integer not null,
    base_revived integer not null default 0,
    base_done integer not null default 0,
    base_failed integer not null default 0,
    fence integer not null default 0,
    held_until integer,
    created_at integer not null,
    changed_at integer not null,
    stop_reason text,
    who text not null,
    why text not null
) strict;

-- Who did what, when and why. Entries are added and never changed.
create table oncebox_audit (
    id integer primary key autoincrement,
    at integer not null,
    consumer integer,
    replay integer,
    messages integer not null,
    verb text not null,
    who text not null,
    why text not null,
    detail text not null
) strict;
create trigger oncebox_audit_is_not_changed before update on oncebox_audit
begin
    select raise(abort, 'the audit log is append-only');
end;
create trigger oncebox_audit_is_not_deleted before delete on oncebox_audit
begin
    select raise(abort, 'the audit log is append-only');
end;
