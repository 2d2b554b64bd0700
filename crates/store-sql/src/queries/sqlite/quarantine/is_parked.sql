-- Whether this content is parked under this key already (unique index oncebox_parked_once).
select id from oncebox_parked where consumer = $1 and key = $2 and fingerprint = $3 and scheme = $4
