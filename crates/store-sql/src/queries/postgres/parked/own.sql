-- Rows that were parked before they had a record (unique index parked_once): whoever records that they are parked calls
-- this in the same transaction, which holds the record, so that no runner is just ending them.
update {schema}.parked set owns_record = 1
from unnest($1::int2[], $2::bytea[], $3::int8[], $4::int2[]) as owner (consumer, key, fingerprint, scheme)
where parked.consumer = owner.consumer and parked.key = owner.key and parked.fingerprint = owner.fingerprint
    and parked.scheme = owner.scheme
