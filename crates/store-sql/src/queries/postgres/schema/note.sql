insert into {schema}.migrations (version, name, checksum) values ($1, $2, $3)
