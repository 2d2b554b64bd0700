delete from {schema}.members where queue = $1 and owner = $2
