-- The place of each of these rows in its order key, if it holds anybody up (primary key). They are in hand: nobody else moves
-- them.
select id, consumer, order_hash, order_key from oncebox_parked
where id in (select value ->> 0 from json_each($1)) and state <> 2
