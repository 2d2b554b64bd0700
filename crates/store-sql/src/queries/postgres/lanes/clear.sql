delete from {schema}.lanes where queue = $1
