-- How far back a consumer looks (primary key). A statement of its own after a claim: its snapshot then has every deletion that the claim
-- waited for.
select greatest(horizon, checkpoint) from {schema}.consumers where id = $1
