insert into oncebox_migrations (version, name, checksum) values ($1, $2, $3)
