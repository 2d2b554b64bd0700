-- Takes logs over, in the order asked for (primary key). Waits for whoever has one locked; what he committed is in the
-- answer, and what he has not is refused: the epoch is another one.
insert into {schema}.offsets as held (consumer, log, epoch)
select $1, asked.log, 1 from unnest($2::bytea[]) with ordinality as asked (log, position) order by asked.position
on conflict (consumer, log) do update set epoch = held.epoch + 1
returning log, epoch, next, witness
