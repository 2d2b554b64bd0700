-- One horizon (primary key). A statement of its own after a claim: its snapshot then has every deletion that the claim
-- waited for.
select horizon from {schema}.consumers where id = $1
