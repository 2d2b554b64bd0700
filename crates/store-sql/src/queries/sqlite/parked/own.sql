-- Rows that were parked before they had a record (unique index oncebox_parked_once): whoever records that they are parked
-- calls this in the same transaction.
update oncebox_parked set owns_record = 1
where (consumer, key, fingerprint, scheme) in (
    select value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3 from json_each($1)
)
