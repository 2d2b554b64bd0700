-- Versions that gave up waiting for a missing one: state 2, and never due by themselves. They wait for a person, hold nobody
-- up, and go on if what is missing comes after all.
create index parked_given_up on {schema}.parked (consumer, last_at) where state = 2 and due_at is null;
