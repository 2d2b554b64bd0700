-- What waits for a person is counted on its own, however much else is parked; and so is what stands behind another and is
-- therefore not among the rows that can be leased. Few rows are in either.
create index oncebox_parked_dead on oncebox_parked (consumer, last_at) where state = 3;
create index oncebox_parked_behind on oncebox_parked (consumer, first_at) where behind = 1;
-- Replays that are not over, however many are.
create index oncebox_replays_open on oncebox_replays (id) where state < 3;
