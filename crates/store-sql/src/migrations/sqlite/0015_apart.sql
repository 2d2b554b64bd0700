-- 1: it waits for a version and had no order key before, so it must have none again when it no longer does: what stored mode
-- could not store stands apart, and earlier messages of its key would wait behind it. Versions before neither read nor write it.
alter table oncebox_parked add column apart integer not null default 0;
