-- The place of each of these rows in its order key, if it holds anybody up (primary key). They are in hand: nobody else moves
-- them.
select id, consumer, order_hash, order_key from {schema}.parked
where id = any($1::int8[]) and state <> 2
