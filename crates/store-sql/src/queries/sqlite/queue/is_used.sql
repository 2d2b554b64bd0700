-- Whether a queue holds messages that are not processed (index oncebox_queue_visible).
select 1 from oncebox_queue where queue = $1 and visible_at is not null limit 1
