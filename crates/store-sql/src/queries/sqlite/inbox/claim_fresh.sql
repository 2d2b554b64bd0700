-- Makes keys ours that are all expected to be free. One that is not fails the statement, which then inserts nothing.
insert into oncebox_inbox (consumer, scheme, key, fingerprint, id_hash, processed_at)
select $1, $2, unhex(value ->> 0), value ->> 1, value ->> 2, cast(unixepoch('subsec') * 1000000 as integer)
from json_each($3)
