-- Where the next step of expiry goes on: at the time $2 of the newest record that this one deleted if the limit stopped it,
-- so that nobody looks again at what stays; otherwise nowhere.
select max($1, $2)
