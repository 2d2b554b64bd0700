-- Notes of rows whether they wait behind one of their topic and order key that is set aside or waits (primary key, index
-- oncebox_outbox_blocking).
update oncebox_outbox as later set state = 1
where later.seq in (select value ->> 0 from json_each($1)) and +later.state = 0 and later.order_hash is not null
    and exists (
        select 1 from oncebox_outbox as earlier
        where earlier.state in (1, 2) and earlier.order_hash = later.order_hash and earlier.seq < later.seq
            and earlier.topic = later.topic and earlier.order_key = later.order_key
    )
