-- How a consumer tells messages apart (primary key), for a start that may change it. Locked: of two starts
-- that change it, the second sees what the first kept.
select identity from {schema}.consumers where id = $1 for update
