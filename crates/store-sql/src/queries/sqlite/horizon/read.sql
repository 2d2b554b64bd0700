-- How far back a consumer looks (primary key).
select max(coalesce(horizon, checkpoint), coalesce(checkpoint, horizon)) from oncebox_consumers where id = $1
