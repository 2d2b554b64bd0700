-- Whether this content is parked under this key already (unique index parked_once).
select id from {schema}.parked where consumer = $1 and key = $2 and fingerprint = $3 and scheme = $4
