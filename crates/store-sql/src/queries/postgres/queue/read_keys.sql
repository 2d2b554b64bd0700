-- Reads the messages that are there under these keys (unique index queue_once).
select key, fingerprint, scheme from {schema}.queue where queue = $1 and key = any($2::bytea[])
