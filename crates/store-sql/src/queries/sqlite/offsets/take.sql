-- Takes logs over (primary key). The transaction is the only one that writes: there is nobody to wait for.
insert into oncebox_offsets (consumer, log, epoch)
select $1, unhex(value ->> 0), 1 from json_each($2)
where true
on conflict (consumer, log) do update set epoch = epoch + 1
returning log, epoch, next, witness
