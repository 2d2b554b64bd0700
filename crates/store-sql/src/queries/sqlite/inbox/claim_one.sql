-- Makes one key ours and returns it if it was free: the claim of a message that runs alone, with no set to unpack.
-- Arbitrated by the primary key.
insert into oncebox_inbox (consumer, scheme, key, fingerprint, id_hash, processed_at)
values ($1, $2, $3, $4, $5, cast(unixepoch('subsec') * 1000000 as integer))
on conflict do nothing
returning key, 1
