-- Makes keys ours and returns those that were free. Arbitrated by the primary key.
insert into oncebox_inbox (consumer, key, fingerprint, scheme, id_hash, processed_at)
select value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4,
    cast(unixepoch('subsec') * 1000000 as integer)
from json_each($1)
where true
on conflict do nothing
returning consumer, key
