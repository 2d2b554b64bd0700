-- How a consumer tells messages apart (primary key). Read without a lock, by what runs, to hold its own way against it.
select identity from {schema}.consumers where id = $1
