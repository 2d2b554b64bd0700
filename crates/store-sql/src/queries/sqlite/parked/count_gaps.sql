-- How many rows of an order key wait for a gap to close and have not given it up (index oncebox_parked_gaps).
select count(*) from oncebox_parked
where consumer = $1 and order_hash = $2 and order_key = $3 and state = 2 and due_at is not null
