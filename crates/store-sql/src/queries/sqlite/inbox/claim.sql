-- Makes keys ours and returns those that were free. Arbitrated by the primary key.
insert into oncebox_inbox (consumer, scheme, key, fingerprint, id_hash, processed_at)
select $1, $2, unhex(value ->> 0), value ->> 1, value ->> 2, cast(unixepoch('subsec') * 1000000 as integer)
from json_each($3)
where true
on conflict do nothing
returning key, 1
