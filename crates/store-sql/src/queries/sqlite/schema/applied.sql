select version, name, checksum from oncebox_migrations order by version
