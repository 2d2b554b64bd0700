-- Reads rows (primary key). This transaction is the only writer: nobody holds them.
select id, consumer, key, fingerprint, scheme, owns_record, case when due_at is null then 3 else state end
from oncebox_parked
where id in (select value ->> 0 from json_each($1))
order by id
