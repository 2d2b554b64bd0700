-- Changes the number of lanes; those that are made next begin with epochs that were never used.
update {schema}.queues
set lanes = $2, epoch = greatest(epoch, (select max(lanes.epoch) from {schema}.lanes where lanes.queue = $1)) + 1
where id = $1
