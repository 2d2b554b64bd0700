-- Changes the number of lanes; those that are made next begin with epochs that were never used.
update oncebox_queues
set lanes = $2,
    epoch = max(epoch, coalesce((select max(lanes.epoch) from oncebox_lanes as lanes where lanes.queue = $1), 0)) + 1
where id = $1
