-- Building an index takes as long as the table is large; a session's own limit is for statements on messages.
set local statement_timeout = 0;
-- What waits for a person is counted on its own, however much else is parked; and so is what stands behind another and is
-- therefore not among the rows that can be leased. Few rows are in either, and a row enters or leaves them with a write
-- that touches every index anyway. They are ordered by what no other index is, so that the counts cannot take another.
create index parked_dead on {schema}.parked (consumer, last_at) where state = 3;
create index parked_behind on {schema}.parked (consumer, first_at) where behind = 1;
-- Replays that are not over, however many are.
create index replays_open on {schema}.replays (id) where state < 3;
