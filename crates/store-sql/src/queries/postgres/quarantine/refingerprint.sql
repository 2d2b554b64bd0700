-- The record of a parked message whose content was edited under the same key (primary key).
update {schema}.inbox set fingerprint = $3, scheme = $4
where consumer = $1 and key = $2 and outcome = 4
