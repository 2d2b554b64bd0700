-- Keeps how a consumer tells messages apart (primary key). Its row is locked by whoever read it to change it.
update {schema}.consumers set identity = $2 where id = $1
