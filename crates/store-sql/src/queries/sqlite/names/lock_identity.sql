-- How a consumer tells messages apart (primary key), for a start that may change it. Only one
-- transaction writes at a time, so of two starts that change it, the second sees what the first kept.
select identity from oncebox_consumers where id = $1
