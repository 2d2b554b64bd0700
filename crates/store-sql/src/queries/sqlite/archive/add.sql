-- Adds the keys of one step.
insert into oncebox_archive (consumer, first_at, last_at, keys, scheme, hashes) values ($1, $2, $3, $4, $5, $6)
